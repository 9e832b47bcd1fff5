//! A model of what a volume may hold after a crash or a fault, given the operations and the syncs
//! before it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parext4::{DirectFile, FileType, Volume};

use crate::sector::{SECTOR, Seen, identify_all};
use crate::volume::DirectFiles as _;
use crate::workload::{FILE, Name, Operation, VolumeState, after};

/// Added to the numbers of inodes of files that [`DurabilityModel::of`] finds. The numbers of new
/// files are below.
const FOUND: u64 = 1 << 32;

/// The states of a volume during a workload, and which of them its syncs made durable.
#[derive(Clone, Debug)]
pub struct DurabilityModel {
    /// The state before the first operation, and after each.
    states: Vec<Arc<VolumeState>>,
    /// Index of the state up to which everything is durable.
    durable: usize,
    /// By file number: index of the state in which the sectors of the file became durable.
    files: BTreeMap<u64, usize>,
    /// By name: index of the state in which the name got its present meaning.
    births: BTreeMap<String, usize>,
    /// Index of the state before the last operation.
    last_whole: usize,
    /// Sectors per block.
    block: usize,
}

impl DurabilityModel {
    /// Returns the model of an empty volume with blocks of `block_size` bytes.
    pub fn new(block_size: u32) -> Self {
        let block = block_size as usize / SECTOR;
        Self {
            states: vec![Arc::default()],
            durable: 0,
            files: BTreeMap::new(),
            births: BTreeMap::new(),
            last_whole: 0,
            block,
        }
    }

    /// Returns the model of a volume that nothing has changed since it was opened.
    ///
    /// # Errors
    /// If a file holds anything but zeros and sectors of the workload.
    pub fn of(volume: &Volume, block_size: u32) -> Result<Self, String> {
        let mut found = BTreeMap::new();
        walk(volume, "", &mut found)?;
        let mut state = VolumeState::default();
        for (path, file) in found {
            let Some(file) = file else {
                state.names.insert(path, Name::Directory);
                continue;
            };
            let number = FOUND + u64::from(file.inode_ref().ino().get());
            state.files.insert(number, Arc::new(read(&file)?));
            state.names.insert(path, Name::File(number));
        }
        let births = state.names.keys().map(|path| (path.clone(), 0)).collect();
        Ok(Self { states: vec![Arc::new(state)], births, ..Self::new(block_size) })
    }

    /// Returns the state after the last operation.
    pub fn state(&self) -> &VolumeState {
        self.states.last().expect("a model has a first state")
    }

    /// Notes that an operation begins: from now on all, a part or nothing of it may be found.
    pub fn begin(&mut self, operation: &Operation) {
        self.last_whole = self.states.len() - 1;
        if let Operation::SetLen { path, sectors } = operation {
            self.push(self.zeroed_before_truncation(path, usize::try_from(*sectors).unwrap()));
        }
        self.push(after(self.state(), operation));
        let now = self.states.len() - 1;
        match operation {
            Operation::Create { path, .. } => drop(self.births.insert(path.clone(), now)),
            Operation::Rename { to, .. } | Operation::Link { to, .. } => {
                self.births.insert(to.clone(), now);
            }
            _ => {}
        }
    }

    /// Returns the state in which the rest of the new last block is zeroed, but the size is still
    /// the old one.
    fn zeroed_before_truncation(&self, path: &str, size: usize) -> VolumeState {
        let mut state = self.state().clone();
        let sectors = state.file(path);
        let end = size.next_multiple_of(self.block).min(sectors.len());
        sectors.get_mut(size..end).unwrap_or_default().fill(Seen::Zero);
        state
    }

    /// Adds a state that may be found.
    pub fn push(&mut self, state: VolumeState) {
        self.states.push(Arc::new(state));
    }

    /// Notes that the last operation succeeded.
    pub fn succeeded(&mut self, operation: &Operation) {
        match operation {
            Operation::SyncVolume | Operation::RemoveOpen(_) => self.all_durable(),
            Operation::SyncFile(path) => {
                self.files.insert(self.state().number(path), self.states.len() - 1);
                self.durable = self.durable.max(self.births[path]);
            }
            _ => {}
        }
    }

    /// Returns this model with only the syncs of `earlier`, a former state of the same model.
    pub fn with_syncs_of(&self, earlier: &Self) -> Self {
        Self { durable: earlier.durable, files: earlier.files.clone(), ..self.clone() }
    }

    /// Notes that everything so far is durable.
    pub fn all_durable(&mut self) {
        self.durable = self.states.len() - 1;
    }

    /// Notes that everything so far is durable, except the last operation if it has `failed`.
    pub fn all_durable_but_the_last(&mut self, failed: bool) {
        self.all_durable();
        if failed {
            self.durable = self.last_whole;
        }
    }

    /// Returns the last state that a sync made durable.
    pub fn durable_state(&self) -> &VolumeState {
        &self.states[self.durable]
    }

    /// Checks that an open volume is in the last state.
    ///
    /// # Errors
    /// A description of a difference.
    pub fn check_now(&self, volume: &Volume) -> Result<usize, String> {
        let mut now = self.clone();
        now.all_durable();
        now.check(volume)
    }

    /// Checks an open volume, and returns the number of inodes with names.
    ///
    /// # Errors
    /// A description of what is missing, or should not be there.
    pub fn check(&self, volume: &Volume) -> Result<usize, String> {
        let mut found = BTreeMap::new();
        walk(volume, "", &mut found)?;
        let names = |found: &BTreeMap<String, Option<DirectFile>>| found.keys().cloned().collect::<Vec<_>>();
        let mut last = format!("the names {:?} never existed together", names(&found));
        for state in &self.states[self.durable..] {
            if !same_names(state, &found) {
                continue;
            }
            match self.check_files(state, &found) {
                Ok(()) => return Ok(inodes(&found)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Checks the files, given that the names have their meaning in `state`.
    fn check_files(
        &self,
        state: &VolumeState,
        found: &BTreeMap<String, Option<DirectFile>>,
    ) -> Result<(), String> {
        for (path, file) in found {
            if let Some(file) = file {
                self.check_file(state.number(path), file).map_err(|e| format!("{path}: {e}"))?;
            }
        }
        Ok(())
    }

    /// Checks that each sector of a file holds what it held at a time since the file was durable.
    fn check_file(&self, number: u64, file: &DirectFile) -> Result<(), String> {
        let since = self.durable.max(self.files.get(&number).copied().unwrap_or(0));
        let possible: Vec<_> =
            self.states[since..].iter().filter_map(|state| state.files.get(&number)).collect();
        let seen = read(file)?;
        let lengths = || possible.iter().map(|sectors| sectors.len());
        let (least, most) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        if seen.len() < least || most < seen.len() {
            return Err(format!("{} sectors, not {least} to {most}", seen.len()));
        }
        for (sector, seen) in seen.iter().enumerate() {
            if !possible.iter().any(|sectors| sectors.get(sector) == Some(seen)) {
                let mut good: Vec<_> = possible.iter().filter_map(|sectors| sectors.get(sector)).collect();
                good.dedup();
                return Err(format!("sector {sector} is {seen:?}, not of {good:?}"));
            }
        }
        Ok(())
    }
}

/// Returns the number of inodes of the names found. Directories have one name.
fn inodes(found: &BTreeMap<String, Option<DirectFile>>) -> usize {
    let files: BTreeSet<_> = found.values().flatten().map(|file| file.inode_ref().ino().get()).collect();
    found.values().filter(|file| file.is_none()).count() + files.len()
}

/// Returns true if the names found, and their kinds, agree with `state`.
fn same_names(state: &VolumeState, found: &BTreeMap<String, Option<DirectFile>>) -> bool {
    state.names.len() == found.len()
        && state.names.iter().zip(found).all(|((path, name), (found_path, file))| {
            path == found_path && matches!(name, Name::Directory) == file.is_none()
        })
}

/// Returns the sectors of a file.
///
/// # Errors
/// If the file holds anything but zeros and its own sectors.
pub fn read(file: &DirectFile) -> Result<Vec<Seen>, String> {
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap().next_multiple_of(SECTOR)];
    let count = file.read_at(&mut bytes, 0).map_err(|e| e.to_string())?;
    identify_all(&bytes[..count], FILE, 0)
}

/// Adds all names below `directory`; for files, with the open file.
fn walk(
    volume: &Volume,
    directory: &str,
    found: &mut BTreeMap<String, Option<DirectFile>>,
) -> Result<(), String> {
    let failed = |e: parext4::Error| format!("{directory}/: {e}");
    for item in volume.read_dir(format!("{directory}/")).map_err(failed)? {
        let item = item.map_err(failed)?;
        let path = format!("{directory}/{}", item.file_name().display());
        if path == "/lost+found" {
            continue;
        }
        if item.file_type() == FileType::Directory {
            walk(volume, &path, found)?;
            found.insert(path, None);
        } else {
            let file = volume.direct_file(&path).map_err(failed)?;
            found.insert(path, Some(file));
        }
    }
    Ok(())
}
