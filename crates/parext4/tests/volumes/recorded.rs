//! Errors found in a volume are recorded in its superblock, where e2fsprogs and the kernel read
//! them.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::device::{FaultDevice, FaultKind, FaultPlan};
use parext4::{Device, DeviceOptions, Error, FileDevice, FileSize, MemDevice, Volume, VolumeOptions};
use parext4_format::jbd2::JournalSuperblock;
use parext4_format::superblock::Superblock;

use testkit::volume::{DirectFiles as _, Shape, untimed};
use testkit::{Image, tool};

/// Returns the lines of dumpe2fs on the state and the recorded errors of a superblock, with single
/// spaces.
fn record(image: &Path) -> Option<String> {
    let output = tool(Command::new("dumpe2fs").arg("-h").arg(image))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter(|line| line.contains("state:") || line.contains("rror "));
    Some(lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect())
}

/// Runs `e2fsck -p` on a copy of a volume. It must notice the recorded errors, and find them.
fn assert_preening_checks(image: &Path) {
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(image, copy.path()).unwrap();
    let Some(output) = tool(Command::new("e2fsck").arg("-p").arg(copy.path())) else { return };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("contains a file system with errors, check forced"), "{text}");
}

/// Makes a volume in a file, with a directory whose block fails its checksum. Returns the number of
/// that block.
fn damaged() -> Option<(Image, u64)> {
    let image = Image::mke2fs(16, &["-b", "1024"])?;
    let volume = image.open();
    volume.create_dir("/dir", 0o755).unwrap();
    volume.create_direct("/dir/file").unwrap();
    volume.close().unwrap();
    let block: u64 = image.debugfs("blocks /dir").trim().parse().ok()?;
    let mut bytes = std::fs::read(image.path()).unwrap();
    bytes[usize::try_from(block).unwrap() * 1024 + 500] ^= 1;
    std::fs::write(image.path(), bytes).unwrap();
    Some((image, block))
}

fn open(image: &Image, options: &VolumeOptions) -> Volume {
    Volume::open_device(Arc::new(FileDevice::open(image.path(), &DeviceOptions::new()).unwrap()), options)
        .unwrap()
}

#[test]
fn damage_is_recorded_once_until_e2fsck_has_repaired_it() {
    let Some((image, block)) = damaged() else { return };
    let fails = |volume: &Volume| {
        for _ in 0..3 {
            assert!(matches!(volume.metadata("/dir/file"), Err(Error::Corrupt(_))));
        }
    };
    // A reader of a read-only volume writes nothing.
    let before = std::fs::read(image.path()).unwrap();
    let volume = open(&image, &VolumeOptions::new().read_only(true));
    fails(&volume);
    volume.close().unwrap();
    assert!(std::fs::read(image.path()).unwrap() == before);

    // The committing thread does not wait for its interval.
    let options = untimed().commit_interval(Duration::from_hours(1));
    let volume = open(&image, &options);
    fails(&volume);
    let deadline = Instant::now() + Duration::from_secs(30);
    while volume.commits() == 0 {
        assert!(Instant::now() < deadline, "the error is not recorded");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_preening_checks(&image.path());
    volume.create_direct("/other").unwrap();
    volume.close().unwrap();

    let expected = |record: &str| {
        for line in [
            "Filesystem state: clean with errors\n",
            "FS Error count: 1\n",
            "First error function: namespace/dir.rs\n",
            "Last error err: EFSCORRUPTED\n",
            &format!("Last error block #: {block}\n"),
        ] {
            assert!(record.contains(line), "{line}{record}");
        }
    };
    let Some(recorded) = record(&image.path()) else { return };
    expected(&recorded);
    assert_preening_checks(&image.path());
    // Neither parext4 nor the kernel clears it.
    image.open().close().unwrap();
    image.with_kernel(|mount| assert!(mount.join("other").exists()));
    expected(&record(&image.path()).unwrap());
    tool(Command::new("e2fsck").arg("-fy").arg(image.path()));
    assert_eq!(record(&image.path()).unwrap(), "Filesystem state: clean\n");
}

/// A request fails after a first transaction is in the log. That transaction's superblock does not
/// have the error.
#[test]
fn a_volume_stopped_by_a_failed_write_or_flush_records_it() {
    let kinds = [FaultKind::Writes, FaultKind::Flushes];
    for (kind, journal) in kinds.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let base = Shape::new(16, 4096, journal).make();
        let run = |fail_at| {
            let memory = Arc::new(base.fork());
            let mut plan = FaultPlan::default().kind(kind);
            plan.fail_at = fail_at;
            let device = Arc::new(FaultDevice::new(Arc::clone(&memory) as _, plan));
            let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
            volume.create_direct("/first").unwrap();
            volume.sync().unwrap();
            let calls = device.calls();
            volume.create_direct("/second").unwrap();
            let file = volume.create_direct("/third").unwrap();
            file.allocate(0..1 << 20, FileSize::Extend).unwrap();
            drop(file);
            assert_eq!(volume.sync().is_err(), fail_at.is_some());
            let free = superblock(&memory).free_blocks();
            drop(volume);
            (memory, calls, free)
        };
        let (_, calls, _) = run(None);
        let (memory, _, free) = run(Some(calls + 1));
        let stopped = superblock(&memory);
        assert_eq!(stopped.error_count(), 1);
        assert_eq!(journal_error(&memory), journal.then_some(-libc::EIO), "{kind:?}");
        assert_eq!(stopped.free_blocks(), free, "the device has no counter of changes that are not durable");
        let file = tempfile::NamedTempFile::new().unwrap();
        memory.save(file.path()).unwrap();
        let Some(recorded) = record(file.path()) else { return };
        assert!(
            recorded.contains("with errors\n") && recorded.contains("Last error err: EIO\n"),
            "{recorded}"
        );
        assert_preening_checks(file.path());
        // The replay restores a superblock without the record.
        let volume = Volume::open_device(Arc::clone(&memory) as Arc<dyn Device>, &untimed()).unwrap();
        volume.metadata("/first").unwrap();
        volume.close().unwrap();
        assert_eq!(superblock(&memory).error_count(), 1);
        memory.save(file.path()).unwrap();
        assert_preening_checks(file.path());
    }
}

fn superblock(device: &MemDevice) -> Superblock {
    Superblock::parse(&device.snapshot()[1024..2048]).unwrap()
}

/// Returns the error that the superblock of the journal has on record. `None` if the volume has no
/// journal.
fn journal_error(device: &MemDevice) -> Option<i32> {
    let bytes = device.snapshot();
    let journal = bytes.chunks_exact(4096).find_map(|block| JournalSuperblock::parse(block).ok());
    journal.map(|journal| journal.errno())
}
