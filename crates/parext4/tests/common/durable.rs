//! What must be found on a volume after a crash or a fault, given what was done and what was synced.

use std::collections::BTreeMap;
use std::sync::Arc;

use parext4::{File, FileType, Volume};

use super::sector::{SECTOR, Seen, identify_all};
use super::workload::{FILE, Name, Operation, State, after};

/// The states that a workload went through, and what its syncs made durable.
#[derive(Clone, Debug)]
pub struct Story {
    /// The state before the first operation, and after each.
    states: Vec<Arc<State>>,
    /// Everything up to this state is durable.
    durable: usize,
    /// The sectors of these files, by number, are durable as they were in this state.
    files: BTreeMap<u64, usize>,
    /// The state in which a name came to mean what it means.
    births: BTreeMap<String, usize>,
    /// The state before the operation that began last.
    last_whole: usize,
    /// Sectors in a block.
    block: usize,
}

impl Story {
    /// A story that begins with an empty volume with blocks of `block_size` bytes.
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

    /// The state after the last operation.
    pub fn state(&self) -> &State {
        self.states.last().expect("a story has a beginning")
    }

    /// An operation begins: from now on all, some or nothing of it may be found.
    pub fn begin(&mut self, operation: &Operation) {
        self.last_whole = self.states.len() - 1;
        if let Operation::SetLen { path, sectors } = operation {
            self.push(self.cut_but_for_the_size(path, usize::try_from(*sectors).unwrap()));
        }
        self.push(after(self.state(), operation));
        let now = self.states.len() - 1;
        match operation {
            Operation::Create { path, .. } => drop(self.births.insert(path.clone(), now)),
            Operation::Rename { to, .. } => drop(self.births.insert(to.clone(), now)),
            _ => {}
        }
    }

    /// The state in which the rest of the block is zeros where a file is about to end, but it does not yet.
    fn cut_but_for_the_size(&self, path: &str, size: usize) -> State {
        let mut state = self.state().clone();
        let sectors = state.file(path);
        let end = size.next_multiple_of(self.block).min(sectors.len());
        sectors.get_mut(size..end).unwrap_or_default().fill(Seen::Zero);
        state
    }

    /// Adds a state that may be found.
    pub fn push(&mut self, state: State) {
        self.states.push(Arc::new(state));
    }

    /// The operation that began last has succeeded.
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

    /// This story, of which only what the syncs of the `earlier` part of it had done is sure to be durable.
    pub fn with_syncs_of(&self, earlier: &Self) -> Self {
        Self { durable: earlier.durable, files: earlier.files.clone(), ..self.clone() }
    }

    /// Everything so far is durable.
    pub fn all_durable(&mut self) {
        self.durable = self.states.len() - 1;
    }

    /// Everything so far is durable, but for the last operation if it has `failed`.
    pub fn all_durable_but_the_last(&mut self, failed: bool) {
        self.all_durable();
        if failed {
            self.durable = self.last_whole;
        }
    }

    /// The state that a sync has made durable last.
    pub fn durable_state(&self) -> &State {
        &self.states[self.durable]
    }

    /// Checks an open volume, and returns how many names it has.
    ///
    /// # Errors
    /// What must be there and is not, or is there and must not be.
    pub fn check(&self, volume: &Volume) -> Result<usize, String> {
        let mut found = BTreeMap::new();
        walk(volume, "", &mut found)?;
        let names = |found: &BTreeMap<String, Option<File>>| found.keys().cloned().collect::<Vec<_>>();
        let mut last = format!("the names {:?} never were there together", names(&found));
        for state in &self.states[self.durable..] {
            if !same_names(state, &found) {
                continue;
            }
            match self.check_files(state, &found) {
                Ok(()) => return Ok(found.len()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Checks the files, if the names mean what they do in `state`.
    fn check_files(&self, state: &State, found: &BTreeMap<String, Option<File>>) -> Result<(), String> {
        for (path, file) in found {
            if let Some(file) = file {
                self.check_file(state.number(path), file).map_err(|e| format!("{path}: {e}"))?;
            }
        }
        Ok(())
    }

    /// Checks that a file holds, sector by sector, what it held since it was durable.
    fn check_file(&self, number: u64, file: &File) -> Result<(), String> {
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

/// Whether what was found has the names and kinds of `state`.
fn same_names(state: &State, found: &BTreeMap<String, Option<File>>) -> bool {
    state.names.len() == found.len()
        && state.names.iter().zip(found).all(|((path, name), (found_path, file))| {
            path == found_path && matches!(name, Name::Directory) == file.is_none()
        })
}

/// What a file holds.
///
/// # Errors
/// If it holds anything but zeros and sectors of its own.
pub fn read(file: &File) -> Result<Vec<Seen>, String> {
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap().next_multiple_of(SECTOR)];
    let count = file.read_at(&mut bytes, 0).map_err(|e| e.to_string())?;
    identify_all(&bytes[..count], FILE, 0)
}

/// All names below `directory`, with what is a file.
fn walk(volume: &Volume, directory: &str, found: &mut BTreeMap<String, Option<File>>) -> Result<(), String> {
    let failed = |e: parext4::Error| format!("{directory}/: {e}");
    for item in volume.read_dir(format!("{directory}/")).map_err(failed)? {
        let item = item.map_err(failed)?;
        let path = format!("{directory}/{}", String::from_utf8_lossy(&item.name));
        if path == "/lost+found" {
            continue;
        }
        if item.file_type == FileType::Directory {
            walk(volume, &path, found)?;
            found.insert(path, None);
        } else {
            let file = volume.open_file(&path).map_err(failed)?;
            found.insert(path, Some(file));
        }
    }
    Ok(())
}
