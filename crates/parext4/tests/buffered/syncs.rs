//! Calls that write back a file which another thread extends.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use parext4::{Device, File, MemDevice, Volume};
use testkit::device::{HookedDevice, Hooks};
use testkit::volume::{Shape, assert_clean, untimed};

use super::create;

const PAGE: usize = 4096;
/// The byte that fills the appended pages.
const DATA: u8 = 0xda;
/// Number of pages after which appends end, so that a call that waits for them returns.
const MOST: u32 = 100;

/// Appends a page each time a page of the file is written to the device, as a thread does that
/// appends without a pause.
#[derive(Debug, Default)]
struct Appender {
    file: Mutex<Option<File>>,
    appended: AtomicU32,
}

impl Appender {
    fn append(&self) {
        let file = self.file.lock().unwrap().clone();
        if let Some(file) = file
            && self.appended.load(Ordering::Relaxed) < MOST
        {
            self.appended.fetch_add(1, Ordering::Relaxed);
            file.append(&[DATA; PAGE]).unwrap();
        }
    }
}

impl Hooks for Appender {
    fn write_at(&self, inner: &dyn Device, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        if bufs.iter().any(|buf| buf.len() >= PAGE && buf.iter().all(|&byte| byte == DATA)) {
            self.append();
        }
        inner.write_at(offset, bufs)
    }
}

type Call = fn(&Volume, &File);

/// Runs `call` on a file with a dirty page, and returns how many pages were appended meanwhile.
fn appended_during(memory: &Arc<MemDevice>, call: Call) -> u32 {
    let device = Arc::new(HookedDevice::new(Arc::clone(memory), Appender::default()));
    let options = untimed().write_back_interval(None);
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
    let appender = device.hooks();
    let file = create(&volume, "/f");
    file.append(&[DATA; PAGE]).unwrap();
    *appender.file.lock().unwrap() = Some(file.clone());
    call(&volume, &file);
    *appender.file.lock().unwrap() = None;
    drop(file);
    let appended = appender.appended.load(Ordering::Relaxed);
    volume.close().unwrap();
    appended
}

#[test]
fn a_call_that_writes_back_waits_for_no_later_append() {
    let calls: [(&str, Call); 8] = [
        ("sync_data", |_, file| file.sync_data().unwrap()),
        ("sync_all", |_, file| file.sync_all().unwrap()),
        ("sync_range", |_, file| file.sync_range(0..1 << 40).unwrap()),
        ("sync of the volume", |volume, _| volume.sync().unwrap()),
        ("set_len", |_, file| file.set_len(1 << 30).unwrap()),
        ("data_range", |_, file| _ = file.data_range(0).unwrap()),
        ("fiemap", |_, file| _ = file.fiemap(0..u64::MAX).unwrap()),
        ("rename", |volume, _| {
            create(volume, "/g");
            volume.rename("/f", "/g").unwrap();
        }),
    ];
    for (name, call) in calls {
        let memory = Arc::new(Shape::new(16, 1024, true).make());
        assert_eq!(appended_during(&memory, call), 1, "{name}");
        assert_clean(&memory, name);
    }
}
