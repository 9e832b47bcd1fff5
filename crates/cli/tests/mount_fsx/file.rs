//! The file and its model.

use std::collections::VecDeque;
use std::io::Result;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::mapping::Mapping;
use testkit::fuse_mount::FuseMount;
use testkit::ops::file_ops::FSX;
use testkit::ops::{Content, FileModel, FileOp, KernelFile, Outcome, Shape, Way};

/// Number of last operations that a failure prints.
const SHOWN: usize = 40;

/// A file, its expected contents, and its last operations.
pub struct FileUnderTest {
    fuse: FuseMount,
    options: String,
    block_size: u64,
    open: Option<Open>,
    model: FileModel,
    last: VecDeque<(u64, FileOp, bool)>,
    counts: Counts,
}

/// An operation that was done.
#[derive(Default)]
struct Counts {
    operations: u64,
    mapped: u64,
    unsupported: u64,
}

/// All handles of the file.
struct Open {
    file: KernelFile,
    mapping: Mapping,
}

impl Open {
    /// Opens the file, and creates it if it does not exist. Does not truncate it.
    fn new(path: PathBuf) -> Result<Self> {
        let file = KernelFile::open(&path)?;
        let size = file.buffered.metadata()?.len();
        file.buffered.set_len(FSX.max_size)?;
        let mapping = Mapping::new(&path, FSX.max_size);
        file.buffered.set_len(size)?;
        Ok(Self { file, mapping })
    }
}

impl FileUnderTest {
    pub fn new(fuse: FuseMount, options: &str, block_size: u64) -> Self {
        let mut tested = Self {
            fuse,
            options: options.to_owned(),
            block_size,
            open: None,
            model: FileModel::default(),
            last: VecDeque::new(),
            counts: Counts::default(),
        };
        tested.open();
        tested
    }

    fn open(&mut self) {
        self.fuse.mount(&self.options);
        self.open = Some(Open::new(self.fuse.path("file")).unwrap());
    }

    fn handles(&mut self) -> &mut Open {
        self.open.as_mut().unwrap()
    }

    pub fn shape(&self) -> Shape {
        self.model.shape(self.block_size)
    }

    /// Runs an operation on the file and on the model. If `mapped`, buffered reads and writes
    /// within the file use the mapping.
    pub fn apply(&mut self, nth: u64, op: FileOp, mapped: bool) {
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        let op = op.in_whole_sectors();
        self.last.push_back((nth, op, mapped));
        self.counts.operations += 1;
        let content = Content::Pattern(nth);
        let mapped = mapped && self.is_mappable(op);
        let done =
            if mapped { Ok(self.run_mapped(op, content)) } else { self.handles().file.run(op, content) };
        match done {
            // FUSE has no request for it.
            Err(error) if is_unsupported(&error) && op.shifts() => self.counts.unsupported += 1,
            Err(error) => self.fail(&error.to_string()),
            Ok(outcome) => {
                let way = if mapped { "mapped" } else { "called" };
                let followed = self.model.follow(op, content, &outcome);
                followed.unwrap_or_else(|error| self.fail(&format!("{op:?}, {way}: {error}")));
            }
        }
        let size = self.handles().file.buffered.metadata().unwrap().len();
        if size != self.model.size() {
            self.fail(&format!("the size is {size}, not {}", self.model.size()));
        }
    }

    fn is_mappable(&self, op: FileOp) -> bool {
        match op {
            FileOp::Read { way: Way::Buffered, offset, len }
            | FileOp::Write { way: Way::Buffered, offset, len } => offset + len <= self.model.size(),
            FileOp::SyncRange { .. } => true,
            _ => false,
        }
    }

    fn run_mapped(&mut self, op: FileOp, content: Content) -> Outcome {
        self.counts.mapped += 1;
        let mapping = &mut self.handles().mapping;
        match op {
            FileOp::Read { offset, len, .. } => return Outcome::Read(mapping.read(offset, len)),
            FileOp::Write { offset, len, .. } => mapping.write(offset, &content.bytes(offset, len)),
            _ => mapping.sync(),
        }
        Outcome::Done
    }

    /// Compares the whole file with the model, through each handle.
    pub fn check_all(&mut self) {
        for way in [Way::Buffered, Way::Direct] {
            self.apply(0, FileOp::Read { way, offset: 0, len: FSX.max_size }, false);
        }
        let whole = FileOp::Read { way: Way::Buffered, offset: 0, len: self.model.size() };
        self.apply(0, whole, true);
    }

    /// Unmounts, runs e2fsck, and mounts again.
    pub fn reopen(&mut self) {
        self.shut();
        self.open();
        self.check_all();
    }

    /// Checks the file once more, unmounts, and returns a summary of the operations.
    pub fn close(mut self) -> String {
        self.check_all();
        self.reopen();
        self.shut();
        let Counts { operations, mapped, unsupported } = self.counts;
        format!(
            "{operations} operations, {mapped} of them mapped; {unsupported} that FUSE has no request for"
        )
    }

    fn shut(&mut self) {
        self.open = None;
        self.fuse.umount();
        self.fuse.scratch().fsck();
    }

    fn fail(&self, why: &str) -> ! {
        for (nth, op, mapped) in &self.last {
            eprintln!("{nth}: {op:?}{}", if *mapped { ", mapped if it can be" } else { "" });
        }
        panic!("{}, blocks of {}: {why}", self.options, self.block_size);
    }
}

fn is_unsupported(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error())
}
