//! A sequence of operations of all kinds, determined by choices, with a model of the state after
//! each.

#![allow(missing_docs, reason = "the fields and variants explain themselves")]

use std::collections::BTreeMap;
use std::sync::Arc;

use parext4::{DirectFile, Error, File, FileSize, OpenOptions, Volume};

use crate::choices::Choices;
use crate::rng::Rng;
use crate::sector::{SECTOR, Seen, Stamp, filled};
use crate::volume::DirectFiles as _;

/// The file number of all sectors. Their sequence numbers tell the files apart.
pub const FILE: u32 = 1;

/// Sectors of the longest request.
const LONGEST: u64 = 128;
const DIRECTORIES: [&str; 4] = ["/a", "/a/b", "/c", "/c/d"];

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    Directory,
    /// A file; a rename keeps its number.
    File(u64),
}

/// The state of a volume between two operations.
#[derive(Clone, Debug, Default)]
pub struct VolumeState {
    /// All names but `/` and `/lost+found`.
    pub names: BTreeMap<String, Name>,
    /// The sectors of every file, including files without a name.
    pub files: BTreeMap<u64, Arc<Vec<Seen>>>,
}

/// One call, or several that belong together.
#[derive(Clone, Debug)]
pub enum Operation {
    MakeDirectory(String),
    RemoveDirectory(String),
    Create {
        path: String,
        number: u64,
    },
    Write {
        path: String,
        first: u64,
        sectors: u64,
        sequence: u64,
    },
    Append {
        path: String,
        sectors: u64,
        sequence: u64,
    },
    /// Through the page cache.
    WriteBuffered {
        path: String,
        first: u64,
        sectors: u64,
        sequence: u64,
    },
    PunchHole {
        path: String,
        first: u64,
        sectors: u64,
    },
    SetLen {
        path: String,
        sectors: u64,
    },
    Allocate {
        path: String,
        first: u64,
        sectors: u64,
        keep_size: bool,
    },
    Rename {
        from: String,
        to: String,
    },
    /// Gives a file a further name.
    Link {
        from: String,
        to: String,
    },
    Remove(String),
    /// Removes a file that is open, writes to it, syncs, and closes it.
    RemoveOpen(String),
    SyncFile(String),
    SyncVolume,
}

/// Chooses operations.
#[derive(Debug)]
pub struct Workload<C = Rng> {
    choices: C,
    sequence: u64,
    /// Whether files can be preallocated, for which they need extents.
    allocates: bool,
    /// Whether files are also written through the page cache, and get holes and further names.
    more: bool,
}

impl Workload {
    /// Returns the workload of a seed.
    pub fn new(seed: u64) -> Self {
        Self::from_choices(Rng::new(seed, 0))
    }
}

impl<C: Choices> Workload<C> {
    /// Returns the workload that `choices` determine.
    pub fn from_choices(choices: C) -> Self {
        Self { choices, sequence: 0, allocates: true, more: false }
    }

    /// Returns what determines the workload, to make other choices in between.
    pub fn choices(&mut self) -> &mut C {
        &mut self.choices
    }

    /// Leaves out operations that need extents, if there are none.
    #[must_use]
    pub fn with_extents(mut self, extents: bool) -> Self {
        self.allocates = extents;
        self
    }

    /// Adds writes through the page cache, holes and further names.
    #[must_use]
    pub fn with_more(mut self) -> Self {
        self.more = true;
        self
    }

    /// Returns an operation that succeeds on a volume in `state`.
    pub fn next(&mut self, state: &VolumeState) -> Operation {
        loop {
            if let Some(operation) = self.choose(state) {
                return operation;
            }
        }
    }

    /// Like [`next`](Self::next), or `None` if the operation that was chosen would not succeed.
    pub fn choose(&mut self, state: &VolumeState) -> Option<Operation> {
        let path = self.path();
        let exists = state.names.contains_key(&path);
        self.sequence += 1;
        let sequence = self.sequence;
        let kind = self.choices.below(100);
        if kind < 12 {
            let directory = DIRECTORIES[usize::try_from(self.choices.below(4)).unwrap()].to_owned();
            return directory_operation(directory, state);
        }
        if kind < 15 {
            return Some(Operation::SyncVolume);
        }
        if !exists {
            let possible = state.names.contains_key(parent(&path));
            return possible.then_some(Operation::Create { path, number: sequence });
        }
        let (first, sectors) = (self.choices.below(LONGEST), self.choices.log_uniform(LONGEST));
        if self.more && self.choices.chance(30) {
            return self.choose_more(state, path, (first, sectors), sequence);
        }
        Some(match kind {
            15..40 => Operation::Write { path, first, sectors, sequence },
            40..55 => Operation::Append { path, sectors, sequence },
            55..62 => Operation::SetLen { path, sectors: first },
            62..70 if !self.allocates => return None,
            62..70 => Operation::Allocate { path, first, sectors, keep_size: self.choices.chance(50) },
            70..78 => {
                let to = self.path();
                // A rename of one name of a file to another one of it does nothing.
                let possible =
                    state.names.contains_key(parent(&to)) && state.names.get(&to) != state.names.get(&path);
                return possible.then_some(Operation::Rename { from: path, to });
            }
            78..82 => Operation::Remove(path),
            82..86 => Operation::RemoveOpen(path),
            _ => Operation::SyncFile(path),
        })
    }

    fn choose_more(
        &mut self,
        state: &VolumeState,
        path: String,
        (first, sectors): (u64, u64),
        sequence: u64,
    ) -> Option<Operation> {
        Some(match self.choices.below(4) {
            0 => Operation::PunchHole { path, first, sectors },
            1 => {
                let to = self.path();
                let possible = state.names.contains_key(parent(&to)) && !state.names.contains_key(&to);
                return possible.then_some(Operation::Link { from: path, to });
            }
            _ => Operation::WriteBuffered { path, first, sectors, sequence },
        })
    }

    /// Returns a name for a file.
    fn path(&mut self) -> String {
        let directory = DIRECTORIES[usize::try_from(self.choices.below(4)).unwrap()];
        format!("{directory}/{}", self.choices.below(3))
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn directory_operation(directory: String, state: &VolumeState) -> Option<Operation> {
    if !state.names.contains_key(&directory) {
        let above = parent(&directory);
        return (above.is_empty() || state.names.contains_key(above))
            .then_some(Operation::MakeDirectory(directory));
    }
    let below = format!("{directory}/");
    let empty = !state.names.keys().any(|path| path.starts_with(&below));
    empty.then_some(Operation::RemoveDirectory(directory))
}

fn data(first: u64, sectors: u64, sequence: u64) -> Vec<u8> {
    filled(first, sectors, stamp(sequence))
}

fn stamp(sequence: u64) -> Stamp {
    Stamp { file: FILE, writer: 0, sequence, origin: 0 }
}

/// Runs `operation` on the volume.
///
/// # Errors
/// The error of the first call that fails.
pub fn run(volume: &Volume, operation: &Operation) -> Result<(), Error> {
    let bytes = |sectors: u64| sectors * SECTOR as u64;
    let open = |path: &str| volume.direct_file(path);
    match operation {
        Operation::MakeDirectory(path) => volume.create_dir(path, 0o755).map(drop),
        Operation::RemoveDirectory(path) => volume.remove_dir(path),
        Operation::Create { path, .. } => volume.create_direct(path).map(drop),
        Operation::Write { path, first, sectors, sequence } => {
            open(path)?.write_all_at(&data(*first, *sectors, *sequence), bytes(*first))
        }
        Operation::Append { path, sectors, sequence } => {
            let file = open(path)?;
            let first = file.size() / SECTOR as u64;
            file.append(&data(first, *sectors, *sequence)).map(drop)
        }
        Operation::WriteBuffered { path, first, sectors, sequence } => {
            let file = File::new(volume.resolve(path)?, &OpenOptions::read_write())?;
            file.write_all_at(&data(*first, *sectors, *sequence), bytes(*first)).map(drop)
        }
        Operation::PunchHole { path, first, sectors } => {
            open(path)?.punch_hole(bytes(*first)..bytes(*first + *sectors))
        }
        Operation::SetLen { path, sectors } => open(path)?.set_len(bytes(*sectors)),
        Operation::Allocate { path, first, sectors, keep_size } => {
            open(path)?.allocate(bytes(*first)..bytes(*first + *sectors), FileSize::kept_if(*keep_size))
        }
        Operation::Rename { from, to } => volume.rename(from, to),
        Operation::Link { from, to } => volume.hard_link(from, to),
        Operation::Remove(path) => volume.remove_file(path),
        Operation::RemoveOpen(path) => {
            let file: DirectFile = open(path)?;
            volume.remove_file(path)?;
            file.write_all_at(&data(0, 8, 0), 0)?;
            volume.sync()
        }
        Operation::SyncFile(path) => open(path)?.sync_all(),
        Operation::SyncVolume => volume.sync(),
    }
}

/// Returns the state after `operation`.
pub fn after(state: &VolumeState, operation: &Operation) -> VolumeState {
    let mut state = state.clone();
    match operation {
        Operation::MakeDirectory(path) => drop(state.names.insert(path.clone(), Name::Directory)),
        Operation::Create { path, number } => {
            state.names.insert(path.clone(), Name::File(*number));
            state.files.insert(*number, Arc::default());
        }
        Operation::RemoveDirectory(path) | Operation::Remove(path) => drop(state.names.remove(path)),
        Operation::RemoveOpen(path) => {
            state.write(path, 0, 8, 0);
            state.names.remove(path);
        }
        Operation::Write { path, first, sectors, sequence }
        | Operation::WriteBuffered { path, first, sectors, sequence } => {
            state.write(path, *first, *sectors, *sequence);
        }
        Operation::PunchHole { path, first, sectors } => {
            let file = state.file(path);
            let end = usize::try_from(first + sectors).unwrap().min(file.len());
            file.get_mut(usize::try_from(*first).unwrap()..end).unwrap_or_default().fill(Seen::Zero);
        }
        Operation::Append { path, sectors, sequence } => {
            let end = state.file(path).len() as u64;
            state.write(path, end, *sectors, *sequence);
        }
        Operation::SetLen { path, sectors } => {
            state.file(path).resize(usize::try_from(*sectors).unwrap(), Seen::Zero);
        }
        Operation::Allocate { path, first, sectors, keep_size } => {
            if !keep_size {
                state.grow(path, first + sectors);
            }
        }
        Operation::Rename { from, to } => {
            let name = state.names.remove(from).expect("a name to rename");
            state.names.insert(to.clone(), name);
        }
        Operation::Link { from, to } => {
            let name = state.names[from];
            state.names.insert(to.clone(), name);
        }
        Operation::SyncFile(_) | Operation::SyncVolume => {}
    }
    state
}

impl VolumeState {
    /// Returns the number of the file `path`.
    pub fn number(&self, path: &str) -> u64 {
        match self.names.get(path) {
            Some(Name::File(number)) => *number,
            other => panic!("{path} is {other:?}, not a file"),
        }
    }

    /// Returns the sectors of the file `path`.
    pub fn file(&mut self, path: &str) -> &mut Vec<Seen> {
        let number = self.number(path);
        Arc::make_mut(self.files.get_mut(&number).expect("a file has sectors"))
    }

    fn grow(&mut self, path: &str, end: u64) {
        let file = self.file(path);
        file.resize(file.len().max(usize::try_from(end).unwrap()), Seen::Zero);
    }

    fn write(&mut self, path: &str, first: u64, sectors: u64, sequence: u64) {
        self.grow(path, first + sectors);
        let first = usize::try_from(first).unwrap();
        let end = first + usize::try_from(sectors).unwrap();
        self.file(path)[first..end].fill(Seen::Data(stamp(sequence)));
    }
}
