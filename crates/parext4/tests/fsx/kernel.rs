//! The operations on a file through the kernel.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use parext4::AlignedBuf;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use testkit::file_model::{FileModel, fill, index};
use testkit::file_op::{MAX_SIZE, Op, Way};

/// A file that is open buffered and with `O_DIRECT`.
pub struct KernelFile {
    buffered: File,
    direct: File,
}

impl KernelFile {
    pub fn open(path: &Path) -> Self {
        let open = |flags: OFlags| {
            let flags = i32::try_from(flags.bits()).unwrap();
            File::options().read(true).write(true).custom_flags(flags).open(path).unwrap()
        };
        Self { buffered: open(OFlags::empty()), direct: open(OFlags::DIRECT) }
    }

    /// Runs an operation on the file and on the model.
    pub fn apply(&self, model: &mut FileModel, nth: u64, op: Op) {
        let allocate = |flags, offset, len| fallocate(&self.buffered, flags, offset, len).unwrap();
        let kept = |keep_size| if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        match op {
            Op::Write { way, offset, len } => self.write(model, way, offset, &data(nth, len)),
            Op::Append { len, .. } => self.write(model, Way::Buffered, model.size(), &data(nth, len)),
            Op::SetLen { size } => self.buffered.set_len(size).unwrap(),
            Op::Allocate { offset, len, keep_size } => allocate(kept(keep_size), offset, len),
            Op::PunchHole { offset, len } => {
                allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len);
            }
            Op::ZeroRange { offset, len, keep_size } => {
                allocate(FallocateFlags::ZERO_RANGE | kept(keep_size), offset, len);
            }
            Op::CollapseRange { offset, len } => allocate(FallocateFlags::COLLAPSE_RANGE, offset, len),
            Op::InsertRange { offset, len } => allocate(FallocateFlags::INSERT_RANGE, offset, len),
            Op::SyncData { .. } | Op::SyncRange { .. } => self.buffered.sync_data().unwrap(),
            Op::SyncAll { .. } => self.buffered.sync_all().unwrap(),
            Op::Read { .. } | Op::Seek { .. } => self.check(model),
        }
        model.apply(op);
    }

    /// Writes directly if sectors permit it.
    fn write(&self, model: &mut FileModel, way: Way, offset: u64, data: &[u8]) {
        let whole = data.len().is_multiple_of(512) && offset.is_multiple_of(512);
        match way {
            Way::Direct if whole => {
                self.direct.write_all_at(&AlignedBuf::from_slice(data), offset).unwrap();
            }
            _ => self.buffered.write_all_at(data, offset).unwrap(),
        }
        model.store(offset, data);
    }

    pub fn check(&self, model: &FileModel) {
        let mut bytes = vec![0; index(model.size())];
        self.buffered.read_exact_at(&mut bytes, 0).unwrap();
        model.compare(&bytes, 0, MAX_SIZE).unwrap_or_else(|error| panic!("read by the kernel: {error}"));
        assert_eq!(self.buffered.metadata().unwrap().len(), model.size());
    }
}

fn data(nth: u64, len: u64) -> Vec<u8> {
    let mut data = vec![0; index(len)];
    fill(&mut data, nth);
    data
}
