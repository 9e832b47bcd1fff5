//! Multi-mount protection beside the kernel and e2fsprogs. A loop device on an image plays the
//! other machine: the locks of the image do not reach it.

mod machine;
mod stopped;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use parext4::DeviceOptions;
use parext4::device::Sharing;
use parext4_storage::open_device;
use testkit::command::{ScratchImage, run, text};
use testkit::fuse_mount::{FuseMount, errors};

use machine::{KERNEL_WAIT, OtherMachine, PROTECTED};

/// The waits of the kernel and e2fsprogs take most of the time, so the scenarios run at the same
/// time.
#[test]
fn one_machine_at_a_time_has_a_volume() {
    if FuseMount::new(PROTECTED).is_none() || OtherMachine::probe().is_none() {
        return;
    }
    thread::scope(|scope| {
        let scenarios: [fn(); 6] = [
            the_kernel_excludes_us,
            we_exclude_the_kernel_and_e2fsck,
            the_kernel_waits_for_a_server_that_was_killed,
            we_wait_for_a_kernel_that_crashed,
            tune2fs_clears_the_block_and_the_feature,
            stopped::an_owner_that_was_stopped_writes_nothing,
        ];
        for scenario in scenarios {
            scope.spawn(scenario);
        }
    });
}

fn the_kernel_excludes_us() {
    let scratch = ScratchImage::new(PROTECTED);
    let other = OtherMachine::with(&scratch.image());
    other.mount().unwrap();
    let (image, inside) = (text(&scratch.image()), scratch.inside("/dir"));
    let block_device =
        open_device(other.device(), &DeviceOptions::new().read_only(true).lock(false)).unwrap();
    assert_eq!(block_device.sharing(), Sharing::Unknown, "a disk may be one of a storage network");
    drop(block_device);
    let refused = errors(&run(&["mkdir", &inside]));
    assert!(refused.contains("another machine has the volume open: node "), "{refused}");
    assert!(refused.contains(&format!("device {}", other.device_name())), "{refused}");
    assert!(errors(&run(&["ls", &image])).contains("read a snapshot"));
    other.umount();
    scratch.ok(&["mkdir", &inside]);
    scratch.fsck();
}

fn we_exclude_the_kernel_and_e2fsck() {
    let fuse = FuseMount::new(PROTECTED).unwrap();
    fuse.mount("");
    let other = OtherMachine::with(&fuse.scratch().image());
    fs::write(fuse.path("file"), "text").unwrap();
    let facts = other.tool("dumpe2fs", &["-h"]);
    assert!(facts.contains("mmp_node_name:") && facts.contains("mmp_device_name: /"), "{facts}");
    thread::scope(|scope| {
        // The kernel holds its device while it waits.
        let third = OtherMachine::with(&fuse.scratch().image());
        let checked = scope.spawn(move || third.tool("e2fsck", &["-p"]));
        let refused = other.mount().unwrap_err();
        assert!(refused.contains("busy"), "{refused}");
        let checked = checked.join().unwrap();
        assert!(checked.contains("device currently active"), "{checked}");
    });
    fuse.umount();
    let began = Instant::now();
    other.mount().unwrap();
    assert!(began.elapsed() < 2 * KERNEL_WAIT, "the volume was closed");
    assert_eq!(other.read("file"), "text");
    other.umount();
    fuse.scratch().fsck();
}

fn the_kernel_waits_for_a_server_that_was_killed() {
    let fuse = FuseMount::new(PROTECTED).unwrap();
    let mut server = fuse.serve("");
    let other = OtherMachine::with(&fuse.scratch().image());
    let file = fs::File::create(fuse.path("file")).unwrap();
    fs::write(fuse.path("file"), "text").unwrap();
    file.sync_all().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let began = Instant::now();
    other.mount().unwrap();
    assert!(began.elapsed() >= 2 * KERNEL_WAIT, "{:?}", began.elapsed());
    assert_eq!(other.read("file"), "text");
    other.umount();
    fuse.scratch().fsck();
}

fn we_wait_for_a_kernel_that_crashed() {
    let scratch = ScratchImage::new(PROTECTED);
    let other = OtherMachine::with(&scratch.image());
    other.mount().unwrap();
    other.write("file", "text");
    let crashed = scratch.path("crashed.img");
    fs::copy(scratch.image(), &crashed).unwrap();
    other.umount();
    let began = Instant::now();
    let out = run(&["mkdir", &format!("{}:/dir", text(&crashed))]);
    assert!(out.status.success(), "{}", errors(&out));
    assert!(errors(&out).contains("waiting up to 22 seconds"), "{}", errors(&out));
    assert!(began.elapsed() >= 2 * KERNEL_WAIT, "{:?}", began.elapsed());
    assert_eq!(scratch.ok(&["cat", &format!("{}:/file", text(&crashed))]), "text");
}

fn tune2fs_clears_the_block_and_the_feature() {
    let scratch = ScratchImage::new(PROTECTED);
    let image = text(&scratch.image());
    let volume = parext4::Volume::open(scratch.image()).unwrap();
    volume.create_dir("/dir", 0o755).unwrap();
    volume.abort().unwrap();
    drop(volume);
    let other = OtherMachine::with(&scratch.image());
    other.tool("tune2fs", &["-f", "-E", "clear_mmp"]);
    let began = Instant::now();
    scratch.ok(&["mkdir", &scratch.inside("/dir/sub")]);
    assert!(began.elapsed() < KERNEL_WAIT, "the block was cleared");
    let changed = other.tool("tune2fs", &["-O", "^mmp"]);
    assert!(!scratch.ok(&["info", &image]).contains("mmp"), "{changed}");
    scratch.ok(&["mkdir", &scratch.inside("/other")]);
    scratch.fsck();
    // The other way round, on a volume that was made without.
    other.tool("tune2fs", &["-O", "mmp", "-E", "mmp_update_interval=1"]);
    assert!(scratch.ok(&["info", &image]).contains("mmp       not in use"));
    scratch.ok(&["mkdir", &scratch.inside("/last")]);
    scratch.fsck();
}

/// Time after which a server that has stopped its volume would have written what it had in memory.
const SETTLED: Duration = Duration::from_secs(6);
