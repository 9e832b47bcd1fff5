//! The file and its model.

use std::collections::VecDeque;
use std::sync::Arc;

use parext4::{DirectFile, Error, File, MemDevice, Volume, VolumeOptions};

use testkit::file_op::{MAX_SIZE, Op, Shape, Way};
use testkit::slowest;
use testkit::volume::{DirectFiles as _, Shape as VolumeShape, assert_clean, untimed};

/// Operations that are printed when a check fails.
const SHOWN: usize = 40;

/// A file, its expected contents, and its last operations.
pub struct Tested {
    device: Arc<MemDevice>,
    block_size: u32,
    options: VolumeOptions,
    open: Option<(Volume, DirectFile, File)>,
    model: Vec<u8>,
    last: VecDeque<(u64, Op)>,
}

impl Tested {
    pub fn new(block_size: u32, cache_size: u64) -> Self {
        let device = Arc::new(VolumeShape::new(24, block_size, true).make_poisoned());
        let options = untimed().cache_bytes(cache_size);
        let mut tested =
            Self { device, block_size, options, open: None, model: Vec::new(), last: VecDeque::new() };
        let volume = tested.volume();
        volume.create_direct("/file").unwrap();
        tested.open(volume);
        tested
    }

    fn volume(&self) -> Volume {
        Volume::open_device(Arc::clone(&self.device) as Arc<_>, &self.options).unwrap()
    }

    fn open(&mut self, volume: Volume) {
        let file = volume.direct_file("/file").unwrap();
        let buffered = file.buffered().unwrap();
        self.open = Some((volume, file, buffered));
    }

    fn file(&self) -> &DirectFile {
        &self.open.as_ref().unwrap().1
    }

    fn buffered(&self) -> &File {
        &self.open.as_ref().unwrap().2
    }

    pub fn shape(&self) -> Shape {
        Shape { size: self.model.len() as u64, block: u64::from(self.block_size) }
    }

    /// Runs the operation on both.
    pub fn apply(&mut self, nth: u64, op: Op) {
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back((nth, op));
        if let Err(error) = self.try_apply(nth, op) {
            self.fail(&format!("{error}"));
        }
        if self.file().size() != self.model.len() as u64 {
            self.fail(&format!("the size is {}, not {}", self.file().size(), self.model.len()));
        }
    }

    fn try_apply(&mut self, nth: u64, op: Op) -> Result<(), Error> {
        match op {
            Op::Read { way, offset, len } => self.read(way, offset, len)?,
            Op::Write { way, offset, len } => {
                let data = data(nth, len);
                match way {
                    Way::Buffered => self.buffered().write_at(&data, offset)?,
                    Way::Direct => self.file().write_at(&data, offset)?,
                }
                self.store(offset, &data);
            }
            Op::Append { way, len } => {
                let len = if way == Way::Direct { len.next_multiple_of(512) } else { len };
                let data = data(nth, len);
                let at = match way {
                    Way::Buffered => self.buffered().append(&data)?,
                    Way::Direct => self.file().append(&data)?,
                };
                if at != self.model.len() as u64 {
                    self.fail(&format!("appended at {at}"));
                }
                self.store(at, &data);
            }
            Op::SetLen { size } => {
                self.file().set_len(size)?;
                self.model.resize(at(size), 0);
            }
            Op::Allocate { offset, len, keep_size } => {
                self.file().allocate(offset, len, keep_size)?;
                self.grow(offset + len, keep_size);
            }
            Op::PunchHole { offset, len } => {
                self.file().punch_hole(offset, len)?;
                self.zero(offset, len);
            }
            Op::ZeroRange { offset, len, keep_size } => {
                self.file().zero_range(offset, len, keep_size)?;
                self.grow(offset + len, keep_size);
                self.zero(offset, len);
            }
            Op::CollapseRange { offset, len } => {
                self.file().collapse_range(offset, len)?;
                self.model.drain(at(offset)..at(offset + len));
            }
            Op::InsertRange { offset, len } => {
                self.file().insert_range(offset, len)?;
                let zeros = std::iter::repeat_n(0, at(len));
                self.model.splice(at(offset)..at(offset), zeros);
            }
            Op::SyncRange { offset, len } => slowest::fsync(|| self.buffered().sync_range(offset, len))?,
            Op::SyncData { way: Way::Buffered } => slowest::fsync(|| self.buffered().sync_data())?,
            Op::SyncData { way: Way::Direct } => slowest::fsync(|| self.file().sync_data())?,
            Op::SyncAll { way: Way::Buffered } => slowest::fsync(|| self.buffered().sync_all())?,
            Op::SyncAll { way: Way::Direct } => slowest::fsync(|| self.file().sync_all())?,
            Op::Seek { offset } => self.seek(offset)?,
        }
        Ok(())
    }

    fn read(&self, way: Way, offset: u64, len: u64) -> Result<(), Error> {
        let mut buf = vec![0xee; at(len)];
        let count = match way {
            Way::Buffered => self.buffered().read_at(&mut buf, offset)?,
            Way::Direct => self.file().read_at(&mut buf, offset)?,
        };
        self.compare(way, &buf[..count], offset, len);
        Ok(())
    }

    /// Compares the result of a read with the model.
    fn compare(&self, way: Way, seen: &[u8], offset: u64, len: u64) {
        let start = at(offset).min(self.model.len());
        let want = &self.model[start..at(offset + len).clamp(start, self.model.len())];
        if seen.len() != want.len() {
            self.fail(&format!("{way:?}: {} bytes at {offset}, not {}", seen.len(), want.len()));
        }
        if let Some(differs) = seen.iter().zip(want).position(|(seen, want)| seen != want) {
            let (seen, want) = (seen[differs], want[differs]);
            self.fail(&format!("{way:?}: byte {} is {seen:#x}, not {want:#x}", start + differs));
        }
    }

    /// Asserts that holes are zeros in the model, and that holes and data alternate.
    fn seek(&self, offset: u64) -> Result<(), Error> {
        let size = self.model.len() as u64;
        let data = match self.file().seek_data(offset) {
            Err(Error::NothingAfter(_)) => {
                let rest = &self.model[at(offset.min(size))..];
                if rest.iter().any(|&byte| byte != 0) {
                    self.fail(&format!("no data from {offset} on"));
                }
                return Ok(());
            }
            data => data?,
        };
        if data < offset || data >= size || self.model[at(offset)..at(data)].iter().any(|&byte| byte != 0) {
            self.fail(&format!("data from {offset} on is at {data}"));
        }
        match self.file().seek_hole(data)? {
            hole if hole > data && hole <= size => Ok(()),
            hole => self.fail(&format!("there is data at {data}, and a hole at {hole}")),
        }
    }

    /// Compares the whole file, both buffered and direct.
    pub fn check_all(&self) {
        for way in [Way::Buffered, Way::Direct] {
            if let Err(error) = self.read(way, 0, MAX_SIZE) {
                self.fail(&format!("{way:?}: {error}"));
            }
        }
    }

    /// Closes the volume, runs e2fsck, and opens it again.
    pub fn reopen(&mut self) {
        self.shut();
        let volume = self.volume();
        self.open(volume);
        self.check_all();
    }

    pub fn close(mut self) {
        self.shut();
    }

    fn shut(&mut self) {
        let (volume, file, buffered) = self.open.take().unwrap();
        drop((file, buffered));
        volume.close().unwrap();
        assert_clean(&self.device, &format!("blocks of {}", self.block_size));
    }

    fn store(&mut self, offset: u64, data: &[u8]) {
        let end = at(offset) + data.len();
        self.model.resize(self.model.len().max(end), 0);
        self.model[at(offset)..end].copy_from_slice(data);
    }

    fn grow(&mut self, end: u64, keep_size: bool) {
        if !keep_size {
            self.model.resize(self.model.len().max(at(end)), 0);
        }
    }

    fn zero(&mut self, offset: u64, len: u64) {
        let size = self.model.len();
        self.model[at(offset).min(size)..at(offset + len).min(size)].fill(0);
    }

    fn fail(&self, why: &str) -> ! {
        for (nth, op) in &self.last {
            eprintln!("{nth}: {op:?}");
        }
        panic!("blocks of {}: {why}", self.block_size);
    }
}

/// Returns bytes that differ by offset and by operation, and are never 0.
fn data(nth: u64, len: u64) -> Vec<u8> {
    (0..len).map(|place| u8::try_from((nth * 31 + place / 512 * 7 + place) % 251).unwrap() + 1).collect()
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}
