//! `--policy` and `--explain`: how operations on one file keep out of each other's way, and what came of it.

use std::fmt::Write as _;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use parext4::{OpenOptions, Policy, Volume};

/// Explanations printed; the rest took less time.
const MOST: usize = 12;

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
    /// How to open the volume.
    pub fn options(self) -> OpenOptions {
        OpenOptions { policy: self.policy, explain: self.explain, ..OpenOptions::default() }
    }

    /// Prints what there is to explain of a volume that was opened with [`options`](Self::options), if asked.
    pub fn report(self, volume: &Volume) {
        if self.explain {
            eprint!("{}", describe(volume));
        }
    }
}

/// The counters, and the waits that took the most time, for people.
pub fn describe(volume: &Volume) -> String {
    let mut text = format!("{}\n", volume.stats());
    let waits = volume.explain();
    for wait in waits.iter().take(MOST) {
        let _ = writeln!(text, "* {wait}");
    }
    if waits.len() > MOST {
        let times: u64 = waits[MOST..].iter().map(|wait| wait.times).sum();
        let _ = writeln!(text, "* and {times} shorter waits of {} kinds", waits.len() - MOST);
    }
    text
}
