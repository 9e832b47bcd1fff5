//! A volume on a Ceph RBD image is taken over from an owner that is stopped or killed.

use std::fs;
use std::io::ErrorKind;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ceph_cluster::{Cluster, Options};
use parext4::DeviceOptions;
use parext4_storage::open_device;
use rustix::process::{Signal, kill_process};
use testkit::command::{run, text};
use testkit::fuse_mount::{errors, umount};
use testkit::poll::until;
use testkit::skipped;

use crate::node::Node;

/// Longest time from the end of the owner to the first write by a standby. Usually it takes about
/// 13 seconds, and 11 more if the standby does not know that the owner is fenced.
const LONGEST: Duration = Duration::from_mins(2);

#[test]
fn a_standby_takes_over_from_an_owner_that_is_stopped_and_from_one_that_is_killed() {
    let missing = Cluster::missing();
    if !missing.is_empty() {
        return skipped(&format!("missing packages: {}", missing.join(" ")));
    }
    let cluster = Cluster::start(&Options::default()).unwrap();
    let url = cluster.url("disk");
    let nodes: Option<Vec<Node>> = ["a", "b", "c", "d"].iter().map(|name| Node::new(&url, name)).collect();
    let Some(nodes) = nodes else { return };
    let [first, second, third, fourth] = &nodes[..] else { unreachable!() };
    let made = run(&["mkfs", "--size", "64M", "-E", "mmp_update_interval=1", &url]);
    assert!(made.status.success(), "{}", errors(&made));
    first.mount(&[]);
    fs::write(first.dir().join("file"), "synced").unwrap();
    fs::File::open(first.dir().join("file")).unwrap().sync_all().unwrap();

    stopped(&url, first, second);
    let owner = killed(second, [third, fourth]);
    a_third_machine_is_refused(&url);
    owner.umount();

    let image = first.dir().with_file_name("image");
    cluster.rbd(&["export", "rbd/disk", &text(&image)]).unwrap();
    let fsck =
        std::process::Command::new("/usr/sbin/e2fsck").args(["-f", "-n"]).arg(&image).output().unwrap();
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
}

/// A machine that found another owner dead does not fence this one.
fn a_third_machine_is_refused(url: &str) {
    let found_dead = "client.1 at 127.0.0.1:0/1".to_owned();
    let options = DeviceOptions::new().takeover(true).takeover_from(found_dead);
    assert_eq!(open_device(url, &options).unwrap_err().kind(), ErrorKind::ResourceBusy);
}

/// The owner is stopped. `takeover` fences it, and the standby mounts.
fn stopped(url: &str, owner: &Node, standby: &Node) {
    standby.mount(&["--standby"]);
    let server = owner.server();
    kill_process(server, Signal::STOP).unwrap();
    let taken = run(&["takeover", url]);
    let said = String::from_utf8_lossy(&taken.stdout);
    assert!(taken.status.success(), "{}", errors(&taken));
    assert!(said.contains("lock of client.") && said.contains("; replayed and closed"), "{said}");
    assert!(until(|| standby.is_mounted()), "{}", standby.log());
    fs::write(standby.dir().join("file"), "standby's").unwrap();

    kill_process(server, Signal::CONT).unwrap();
    // Nothing uses the mount, so the owner finds out by itself.
    owner.logs("the volume stops: ");
    let file = owner.dir().join("file");
    let refused = |error: std::io::Error| {
        assert!(
            matches!(error.raw_os_error(), Some(5 | 30)) || error.kind() == ErrorKind::PermissionDenied,
            "{error}"
        );
    };
    let late = fs::File::options().write(true).open(&file).and_then(|file| {
        std::io::Write::write_all(&mut &file, b"late")?;
        file.sync_all()
    });
    refused(late.unwrap_err());
    let log = owner.log();
    let reason = log.lines().find(|line| line.contains("the volume stops: ")).unwrap();
    assert!(reason.contains("fenced: another client took over the image"), "{log}");
    // The directory is free, and the message says that changes may be lost.
    let ended = umount(owner.dir());
    assert!(errors(&ended).contains("fenced: another client took over the image"), "{}", errors(&ended));
    assert!(!owner.is_mounted());
    assert_eq!(fs::read_to_string(standby.dir().join("file")).unwrap(), "standby's");
}

/// The owner is killed, which nothing tells two standbys. Both find it gone at about the same time;
/// one fences it and mounts, and the other must not fence the first. Returns the one that has
/// mounted.
fn killed<'a>(owner: &Node, standbys: [&'a Node; 2]) -> &'a Node {
    standbys.iter().for_each(|standby| standby.mount(&["--standby"]));
    fs::write(owner.dir().join("synced"), "before").unwrap();
    fs::File::open(owner.dir().join("synced")).unwrap().sync_all().unwrap();
    kill_process(owner.server(), Signal::KILL).unwrap();
    let begin = Instant::now();
    let writes =
        |standby: &&Node| standby.is_mounted() && fs::write(standby.dir().join("new"), "new").is_ok();
    let logs = || standbys.map(Node::log).join("\n");
    let winner = loop {
        if let Some(winner) = standbys.iter().position(writes) {
            break winner;
        }
        assert!(begin.elapsed() < LONGEST, "{}", logs());
        sleep(Duration::from_millis(50));
    };
    eprintln!("first write {:?} after the kill", begin.elapsed());
    let (winner, loser) = (standbys[winner], standbys[1 - winner]);
    // Long enough for the other one to take over too.
    sleep(Duration::from_secs(4));
    assert!(!loser.is_mounted(), "{}", logs());
    let file = winner.dir().join("after");
    fs::write(&file, "after").and_then(|()| fs::File::open(&file)?.sync_all()).unwrap();
    assert_eq!(fs::read_to_string(winner.dir().join("synced")).unwrap(), "before");
    loser.umount();
    winner
}
