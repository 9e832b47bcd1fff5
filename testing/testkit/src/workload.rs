//! A sequence of operations of all kinds, determined by choices.

use crate::choices::Choices;
use crate::ops::{Content, FileOp, Op, Tree, Way};
use crate::rng::Rng;
use crate::sector::{SECTOR, Stamp};

/// The file number of all sectors. Their sequence numbers tell the files apart.
pub const FILE: u32 = 1;

/// Sectors of the longest request.
const LONGEST: u64 = 128;
/// The directories, and in each the names of files.
const DIRECTORIES: [&str; 4] = ["/a", "/a/b", "/c", "/c/d"];
const FILES: [[&str; 3]; 4] = [
    ["/a/0", "/a/1", "/a/2"],
    ["/a/b/0", "/a/b/1", "/a/b/2"],
    ["/c/0", "/c/1", "/c/2"],
    ["/c/d/0", "/c/d/1", "/c/d/2"],
];

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

    /// Returns an operation that succeeds on a volume with this tree, and what it writes.
    pub fn next(&mut self, tree: &Tree) -> (Op, Content) {
        loop {
            if let Some(operation) = self.choose(tree) {
                return operation;
            }
        }
    }

    /// Like [`next`](Self::next), or `None` if the operation that was chosen would not succeed.
    pub fn choose(&mut self, tree: &Tree) -> Option<(Op, Content)> {
        self.sequence += 1;
        let stamp = Stamp { file: FILE, writer: 0, sequence: self.sequence, origin: 0 };
        let (op, content) = (self.choose_op(tree), Content::Stamp(stamp));
        op.filter(|op| tree.after(op, content).is_some()).map(|op| (op, content))
    }

    fn choose_op(&mut self, tree: &Tree) -> Option<Op> {
        let path = self.path();
        let kind = self.choices.below(100);
        if kind < 12 {
            let directory = *self.choices.pick(&DIRECTORIES);
            let is_there = tree.names.contains_key(directory);
            return Some(if is_there { Op::RemoveDir(directory) } else { Op::MakeDir(directory) });
        }
        if kind < 15 {
            return Some(Op::SyncVolume);
        }
        if !tree.names.contains_key(path) {
            return Some(Op::Create(path));
        }
        let offset = self.choices.below(LONGEST) * SECTOR as u64;
        let len = self.choices.log_uniform(LONGEST) * SECTOR as u64;
        if self.more && self.choices.chance(30) {
            return Some(self.choose_more(path, offset, len));
        }
        let way = Way::Direct;
        let op = match kind {
            15..40 => FileOp::Write { way, offset, len },
            40..55 => FileOp::Append { way, len },
            55..62 => FileOp::SetLen { size: offset },
            62..70 if !self.allocates => return None,
            62..70 => FileOp::Allocate { offset, len, keep_size: self.choices.chance(50) },
            70..78 => return Some(Op::Rename(path, self.path())),
            78..82 => return Some(Op::Unlink(path)),
            82..86 => return Some(Op::RemoveOpen(path)),
            _ => FileOp::SyncAll { way },
        };
        Some(Op::File(path, op))
    }

    fn choose_more(&mut self, path: &'static str, offset: u64, len: u64) -> Op {
        match self.choices.below(4) {
            0 => Op::File(path, FileOp::PunchHole { offset, len }),
            1 => Op::Link(path, self.path()),
            _ => Op::File(path, FileOp::Write { way: Way::Buffered, offset, len }),
        }
    }

    /// Returns a name for a file.
    fn path(&mut self) -> &'static str {
        let files = *self.choices.pick(&FILES);
        files[usize::try_from(self.choices.below(3)).expect("few files")]
    }
}
