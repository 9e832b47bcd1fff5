//! The file and its model.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use parext4::{Device, DirectFile, Error, File, FileSize, MemDevice, Volume, VolumeOptions};

use super::kernel::KernelFile;
use parext4_format::superblock::Superblock;
use testkit::file_model::{FileModel, fill, index};
use testkit::file_op::{MAX_SIZE, Op, Shape, Way};
use testkit::image::Image;
use testkit::rng::Rng;
use testkit::slowest;
use testkit::volume::{DirectFiles as _, Shape as VolumeShape, assert_clean, untimed};

/// Operations that are printed when a check fails.
const SHOWN: usize = 40;

/// A file, its expected contents, and its last operations.
pub struct FileUnderTest {
    device: Arc<MemDevice>,
    block_size: u32,
    /// Bytes of a cluster.
    unit: u32,
    extents: bool,
    options: VolumeOptions,
    open: Option<(Volume, DirectFile, File)>,
    model: FileModel,
    last: VecDeque<(u64, Op)>,
}

impl FileUnderTest {
    pub fn new(shape: VolumeShape, cache_size: u64) -> Self {
        Self::on(shape.make_poisoned(), shape.has_extents(), cache_size)
    }

    /// Makes the file on an empty volume.
    pub fn on(device: MemDevice, extents: bool, cache_size: u64) -> Self {
        let mut bytes = [0; 1024];
        device.read_at(1024, &mut [IoSliceMut::new(&mut bytes)]).unwrap();
        let superblock = Superblock::parse(&bytes).unwrap();
        let mut tested = Self {
            device: Arc::new(device),
            block_size: superblock.block_size(),
            unit: superblock.block_size() << superblock.cluster_bits(),
            extents,
            options: untimed().cache_bytes(cache_size),
            open: None,
            model: FileModel::default(),
            last: VecDeque::new(),
        };
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
        self.model.shape(self.unit.into())
    }

    /// Runs the operation on both.
    pub fn apply(&mut self, nth: u64, op: Op) {
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back((nth, op));
        match self.try_apply(nth, op) {
            Err(Error::Unsupported(_)) if !self.extents && op.needs_extents() => {}
            Err(error) => self.fail(&format!("{error}")),
            Ok(()) if !self.extents && op.needs_extents() => self.fail("there are no extents"),
            Ok(()) => {}
        }
        if self.file().size() != self.model.size() {
            self.fail(&format!("the size is {}, not {}", self.file().size(), self.model.size()));
        }
    }

    fn try_apply(&mut self, nth: u64, op: Op) -> Result<(), Error> {
        match op {
            Op::Read { way, offset, len } => self.read(way, offset, len)?,
            Op::Write { way, offset, len } => {
                let data = data(nth, len);
                match way {
                    Way::Buffered => self.buffered().write_all_at(&data, offset)?,
                    Way::Direct => self.file().write_all_at(&data, offset)?,
                }
                self.model.store(offset, &data);
            }
            Op::Append { way, len } => {
                let len = if way == Way::Direct { len.next_multiple_of(512) } else { len };
                let data = data(nth, len);
                let at = match way {
                    Way::Buffered => self.buffered().append(&data)?,
                    Way::Direct => self.file().append(&data)?,
                };
                if at != self.model.size() {
                    self.fail(&format!("appended at {at}"));
                }
                self.model.store(at, &data);
            }
            Op::SetLen { size } => self.file().set_len(size)?,
            Op::Allocate { offset, len, keep_size } => {
                self.file().allocate(offset..offset + len, FileSize::kept_if(keep_size))?
            }
            Op::PunchHole { offset, len } => self.file().punch_hole(offset..offset + len)?,
            Op::ZeroRange { offset, len, keep_size } => {
                self.file().zero_range(offset..offset + len, FileSize::kept_if(keep_size))?
            }
            Op::CollapseRange { offset, len } => self.file().collapse_range(offset..offset + len)?,
            Op::InsertRange { offset, len } => self.file().insert_range(offset..offset + len)?,
            Op::SyncRange { offset, len } => {
                slowest::fsync(|| self.buffered().sync_range(offset..offset + len))?
            }
            Op::SyncData { way: Way::Buffered } => slowest::fsync(|| self.buffered().sync_data())?,
            Op::SyncData { way: Way::Direct } => slowest::fsync(|| self.file().sync_data())?,
            Op::SyncAll { way: Way::Buffered } => slowest::fsync(|| self.buffered().sync_all())?,
            Op::SyncAll { way: Way::Direct } => slowest::fsync(|| self.file().sync_all())?,
            Op::Seek { offset } => self.seek(offset)?,
        }
        self.model.apply(op);
        Ok(())
    }

    fn read(&self, way: Way, offset: u64, len: u64) -> Result<(), Error> {
        let mut buf = vec![0xee; index(len)];
        let count = match way {
            Way::Buffered => self.buffered().read_at(&mut buf, offset)?,
            Way::Direct => self.file().read_at(&mut buf, offset)?,
        };
        let compared = self.model.compare(&buf[..count], offset, len);
        compared.unwrap_or_else(|error| self.fail(&format!("{way:?}: {error}")));
        Ok(())
    }

    /// Checks that holes are zeros in the model, and that holes and data alternate.
    fn seek(&self, offset: u64) -> Result<(), Error> {
        let checked = match self.file().seek_data(offset) {
            Err(Error::NothingAfter(_)) => self.model.check_no_data(offset),
            data => {
                let data = data?;
                self.model.check_data_and_hole(offset, data, self.file().seek_hole(data)?)
            }
        };
        checked.unwrap_or_else(|error| self.fail(&error));
        Ok(())
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

    /// Closes the volume, has the kernel change the file `ops` times, and opens the volume again.
    /// Returns false if the kernel does not mount images here.
    pub fn change_by_kernel(&mut self, rng: &mut Rng, ops: u64) -> bool {
        self.shut();
        let (image, mut mounted) = (Image::of(&self.device), false);
        image.with_kernel(|root| {
            mounted = true;
            let file = KernelFile::open(&root.join("file"));
            file.check(&self.model);
            for nth in 0..ops {
                let op = Op::random(rng, &self.shape());
                file.apply(&mut self.model, nth, op);
            }
            file.check(&self.model);
        });
        let bytes = std::fs::read(image.path()).unwrap();
        self.device.write_at(0, &[IoSlice::new(&bytes)]).unwrap();
        assert_clean(&self.device, "changed by the kernel");
        let volume = self.volume();
        self.open(volume);
        self.check_all();
        mounted
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

    fn fail(&self, why: &str) -> ! {
        for (nth, op) in &self.last {
            eprintln!("{nth}: {op:?}");
        }
        panic!("blocks of {}: {why}", self.block_size);
    }
}

/// Returns the data of an operation.
fn data(nth: u64, len: u64) -> Vec<u8> {
    let mut data = vec![0; index(len)];
    fill(&mut data, nth);
    data
}
