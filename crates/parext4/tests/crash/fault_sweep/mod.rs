//! The workloads of the fault sweep. Each is a test, which repeats its workload with a sample of
//! the faults, or with `PAREXT4_STRESS_ALL=1` with all of them (`testkit::fault_sweep`).
//!
//! Run with `cargo xtask faults`.

mod attributes;
mod buffered;
mod direct;
mod formats;
mod journal_device;
mod names;
mod protected;
mod queued;
mod space;
mod threads;
mod timers;
mod unopened;
mod volumes;

use std::sync::Arc;

use parext4::{MemDevice, OpenOptions, Result, Volume};
use testkit::fault_sweep::Run;
use testkit::volume::{DirectFiles as _, Shape, untimed};

/// A workload: its name, its volume, the options to open it with, and its steps.
macro_rules! workload {
    ($name:ident, $base:expr, $options:expr, |$run:ident| $steps:block) => {
        #[test]
        fn $name() {
            fn steps($run: &mut testkit::fault_sweep::Run<'_>) -> parext4::Result<()> $steps
            testkit::fault_sweep::sweep(&testkit::fault_sweep::Workload {
                name: stringify!($name),
                base: || $base.into(),
                options: || $options,
                run: steps,
            });
        }
    };
}
use workload;

/// Blocks of 4 KiB. Always the same volume, so that a fault's number is the same request when it is
/// repeated.
const LARGE: Shape = Shape { identity: Some(1), ..Shape::new(8, 4096, true) };
/// Blocks of 1 KiB.
const SMALL: Shape = Shape { identity: Some(1), ..Shape::new(8, 1024, true) };

/// Makes a volume on a device full of old bytes, and fills it.
fn volume(shape: Shape, fill: impl FnOnce(&Volume) -> Result<()>) -> MemDevice {
    let device = Arc::new(shape.make_poisoned());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<_>, &untimed()).expect("the volume opens");
    fill(&volume).expect("the volume is filled");
    volume.close().expect("the volume closes");
    Arc::into_inner(device).expect("the volume is closed")
}

/// Returns a volume with the file `/file` of `len` bytes, and `/other`, which no workload changes.
fn with_file(shape: Shape, len: usize) -> MemDevice {
    volume(shape, |volume| {
        volume.write("/other", bytes(99, 5000))?;
        volume.create_direct("/file")?.write_all_at(&bytes(1, len), 0)
    })
}

/// Writes to `/file` and commits, so often that the log wraps around and checkpoints run.
fn commit_often(run: &mut Run<'_>, commits: u8) -> Result<()> {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    for nth in 0..commits {
        run.step("write far apart", |_| {
            (0..40).try_for_each(|block| {
                file.write_all_at(&bytes(nth, 1024), (u64::from(nth) + block * 11) * 2048)
            })
        })?;
        let name = format!("/dir-{nth}");
        run.step("make", |volume| volume.create_dir(name, 0o755).map(drop))?;
        run.sync()?;
    }
    Ok(())
}

/// Returns bytes that differ from tag to tag, and from sector to sector. None is zero.
fn bytes(tag: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8 & 15) | 16 | (tag.wrapping_add((at / 512) as u8) << 5)).collect()
}

/// Creates a file for buffered access.
fn create(volume: &Volume, path: &str) -> Result<parext4::File> {
    volume.open_file(path, &OpenOptions::read_write().create_new(true))
}
