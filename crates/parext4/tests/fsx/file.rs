//! The file and its model.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use parext4::{Device, Error, MemDevice, Volume, VolumeOptions};

use parext4_format::superblock::Superblock;
use testkit::image::Image;
use testkit::ops::file_ops::FSX;
use testkit::ops::{Content, FileHandles, FileModel, FileOp, KernelFile, Shape, Way};
use testkit::rng::Rng;
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
    open: Option<(Volume, FileHandles)>,
    model: FileModel,
    last: VecDeque<(u64, FileOp)>,
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
        let handles = FileHandles::new(&volume, volume.direct_file("/file").unwrap()).unwrap();
        self.open = Some((volume, handles));
    }

    fn handles(&self) -> &FileHandles {
        &self.open.as_ref().unwrap().1
    }

    pub fn shape(&self) -> Shape {
        self.model.shape(self.unit.into())
    }

    /// Runs the operation on both.
    pub fn apply(&mut self, nth: u64, op: FileOp) {
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back((nth, op));
        let content = Content::Pattern(nth);
        match self.handles().run(op, content) {
            Err(Error::Unsupported(_)) if !self.extents && op.needs_extents() => {}
            Err(error) => self.fail(&format!("{error}")),
            Ok(_) if !self.extents && op.needs_extents() => self.fail("there are no extents"),
            Ok(outcome) => {
                let followed = self.model.follow(op, content, &outcome);
                followed.unwrap_or_else(|error| self.fail(&format!("{op:?}: {error}")));
            }
        }
        let size = self.handles().direct.size();
        if size != self.model.size() {
            self.fail(&format!("the size is {size}, not {}", self.model.size()));
        }
    }

    /// Compares the whole file, both buffered and direct.
    pub fn check_all(&mut self) {
        for way in [Way::Buffered, Way::Direct] {
            self.apply(0, FileOp::Read { way, offset: 0, len: FSX.max_size });
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
            let file = KernelFile::open(&root.join("file")).unwrap();
            let whole = FileOp::Read { way: Way::Buffered, offset: 0, len: FSX.max_size };
            self.apply_by_kernel(&file, 0, whole);
            for nth in 0..ops {
                let op = FSX.random(rng, &self.shape()).in_whole_sectors();
                self.apply_by_kernel(&file, nth, op);
            }
            self.apply_by_kernel(&file, 0, whole);
        });
        let bytes = std::fs::read(image.path()).unwrap();
        self.device.write_at(0, &[IoSlice::new(&bytes)]).unwrap();
        assert_clean(&self.device, "changed by the kernel");
        let volume = self.volume();
        self.open(volume);
        self.check_all();
        mounted
    }

    fn apply_by_kernel(&mut self, file: &KernelFile, nth: u64, op: FileOp) {
        let content = Content::Pattern(nth);
        let outcome = file.run(op, content).unwrap_or_else(|error| self.fail(&format!("{op:?}: {error}")));
        let followed = self.model.follow(op, content, &outcome);
        followed.unwrap_or_else(|error| self.fail(&format!("{op:?} by the kernel: {error}")));
        assert_eq!(file.buffered.metadata().unwrap().len(), self.model.size(), "{op:?} by the kernel");
    }

    pub fn close(mut self) {
        self.shut();
    }

    fn shut(&mut self) {
        let (volume, handles) = self.open.take().unwrap();
        drop(handles);
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
