//! `--policy` and `--explain`: how operations on one file keep out of each other's way, and what
//! came of it.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use parext4::{Policy, ResearchOptions, Volume, VolumeOptions};

use crate::{error, explain};

/// The options, for commands to flatten into theirs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct PolicyArgs {
    /// What operations on one file hold: their bytes, or the file as the kernel's ext4 did or does
    #[arg(long, default_value_t, value_parser = parser())]
    pub policy: Policy,
    /// Say in the end, on stderr, what was counted and why operations waited
    #[arg(long)]
    pub explain: bool,
}

fn parser() -> impl TypedValueParser<Value = Policy> {
    PossibleValuesParser::new(Policy::ALL.map(Policy::name)).try_map(|name| name.parse::<Policy>())
}

impl PolicyArgs {
    /// Returns the options with which to open the volume.
    pub fn options(self) -> VolumeOptions {
        VolumeOptions::new().explain(self.explain).research(ResearchOptions::new().policy(self.policy))
    }

    /// Prints the counters of `volume` and its longest waits, if `--explain` was given. The volume
    /// was opened with [`options`](Self::options).
    pub fn report(self, volume: &Volume) {
        if self.explain {
            error::explain(&explain::describe(volume));
        }
    }
}
