//! SIGINT, SIGTERM and SIGHUP: how they end a server, which depends on what the server is doing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use parext4_mount::{MountState, call_umount, is_held_elsewhere};
use parking_lot::Mutex;

use super::log;

/// What a server does when a signal arrives.
#[derive(Clone, Debug)]
pub enum Stage {
    /// It waits to take a volume over, and has nothing to clean up.
    StandsBy,
    /// It opens and mounts a volume. It ends once that is done.
    Opens,
    /// It serves. The directory is detached; the mount ends after its last open file is closed.
    Serves,
    /// Like `Serves`, over the connection with this number. While the mount is read-only, the
    /// server ends at once if another mount namespace holds the volume: nothing can be lost.
    ServesOver(String, MountState),
}

/// The handler of the signals.
#[derive(Clone, Debug)]
pub struct Signals {
    dir: PathBuf,
    state: Arc<Mutex<SignalState>>,
}

#[derive(Debug)]
struct SignalState {
    stage: Stage,
    has_arrived: bool,
}

impl Signals {
    /// Catches the signals from now on; at most once in a process.
    pub fn catch(dir: &Path, stage: Stage) -> Result<Self> {
        let state = Arc::new(Mutex::new(SignalState { stage, has_arrived: false }));
        let signals = Self { dir: dir.to_owned(), state };
        let handler = signals.clone();
        ctrlc::set_handler(move || handler.arrive()).context("catching signals")?;
        Ok(signals)
    }

    fn arrive(&self) {
        let mut state = self.state.lock();
        state.has_arrived = true;
        self.act(&state);
    }

    /// Begins a stage. A signal that arrived before takes effect now if it has not yet.
    pub fn enter(&self, stage: Stage) {
        let mut state = self.state.lock();
        state.stage = stage;
        if state.has_arrived {
            self.act(&state);
        }
    }

    fn act(&self, state: &SignalState) {
        match &state.stage {
            Stage::StandsBy => {
                ::log::info!("{}: no longer standing by", self.dir.display());
                log::end();
                std::process::exit(0);
            }
            Stage::Opens => {}
            Stage::Serves => self.detach(),
            Stage::ServesOver(connection, state) => {
                self.detach();
                if is_held_elsewhere(connection) && state.is_read_only() {
                    ::log::info!("{} is unmounted, also in other mount namespaces", self.dir.display());
                    log::end();
                    std::process::exit(0);
                }
            }
        }
    }

    fn detach(&self) {
        if let Err(error) = call_umount(&self.dir, true) {
            ::log::error!("{error}");
        }
    }
}
