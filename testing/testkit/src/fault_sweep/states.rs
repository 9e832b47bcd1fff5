//! The states of a volume during a workload, and which of them may be found after a fault.

use std::collections::BTreeMap;
use std::sync::Arc;

use parext4::InodeNo;

use super::snapshot::Snapshot;
use crate::ops::Zeros;
use crate::ops::crash_oracle::is_at;
use crate::sector::SECTOR;

/// The state before the first step of a workload, and after each, as a run without faults had them.
#[derive(Clone, Debug, Default)]
pub struct States(Vec<Snapshot>);

/// How far a run has come.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Number of steps that began. All, a part or nothing of the last one may be found.
    pub begun: usize,
    /// Number of steps whose effects are durable.
    pub durable: usize,
    /// By inode number, in the run without faults: number of steps whose effects on the data are
    /// durable.
    pub files: BTreeMap<InodeNo, usize>,
}

impl States {
    /// Returns the last state.
    pub fn last(&self) -> Option<&Snapshot> {
        self.0.last()
    }

    /// Adds the state after a step.
    pub fn push(&mut self, state: Snapshot) {
        self.0.push(state);
    }

    /// Notes in `progress` that the file `path` was synced in its state after `progress.begun`
    /// steps: its data is durable, and its name.
    pub fn synced(&self, path: &str, progress: &mut Progress) {
        let now = progress.begun;
        let ino = |state: &Snapshot| state.0.get(path).map(|entry| entry.ino);
        let own = ino(&self.0[now]).expect("a synced file has its name");
        progress.files.insert(own, now);
        let birth =
            self.0[..=now].iter().rposition(|state| ino(state) != Some(own)).map_or(0, |before| before + 1);
        progress.durable = progress.durable.max(birth);
    }

    /// Checks that `found` is a state that a run may have left that has come as far as `progress`.
    ///
    /// # Errors
    /// A description of what is missing, or should not be there.
    pub fn check(&self, found: &Snapshot, progress: &Progress) -> Result<(), String> {
        let possible = &self.0[progress.durable..=progress.begun];
        let mut problem = format!("of {} possible states, none has these names: ", possible.len());
        problem += &found.difference(&possible[0]);
        for state in possible.iter().filter(|state| found.has_names_of(state)) {
            match self.check_data(state, found, progress) {
                Ok(()) => return Ok(()),
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }

    /// Checks the data of all files, given that the names have their meaning in `state`.
    fn check_data(&self, state: &Snapshot, found: &Snapshot, progress: &Progress) -> Result<(), String> {
        for (path, entry) in &state.0 {
            let Some(data) = &found.0[path].data else { continue };
            let since = progress.files.get(&entry.ino).copied().unwrap_or(0).max(progress.durable);
            let possible: Vec<_> =
                self.0[since..=progress.begun].iter().filter_map(|state| state.data_of(entry.ino)).collect();
            check_file(data, &possible).map_err(|error| format!("{path}: {error}"))?;
        }
        Ok(())
    }
}

/// Checks that each sector of a file is as in one of the possible contents. Where one of them ends,
/// zeros are possible, too.
fn check_file(found: &[u8], possible: &[&Arc<Vec<u8>>]) -> Result<(), String> {
    let sizes = || possible.iter().map(|data| data.len());
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    if found.len() < least || most < found.len() {
        return Err(format!("{} bytes, not {least} to {most}", found.len()));
    }
    if possible.iter().any(|data| ***data == *found) {
        return Ok(());
    }
    for (number, sector) in found.chunks(SECTOR).enumerate() {
        let start = number * SECTOR;
        let is_possible = possible.iter().any(|data| is_at(sector, data, start, Zeros::PastTheEnd));
        if !is_possible {
            let bytes = &sector[..sector.len().min(16)];
            return Err(format!("sector {number} was never {bytes:02x?}..., of {} bytes", found.len()));
        }
    }
    Ok(())
}
