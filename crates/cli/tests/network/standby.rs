//! Standbys of a volume that its owner closes.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use testkit::command::text;
use testkit::fuse_mount::errors;
use testkit::poll::until;

use crate::export::Export;
use crate::node::Node;

#[test]
fn of_two_standbys_one_mounts_and_the_other_goes_on_waiting() {
    let Some(export) = Export::new() else { return };
    export.ok(&["mkfs", "-E", "mmp_update_interval=1", &export.url()]);
    let nodes: Option<Vec<Node>> =
        ["owner", "first", "second"].iter().map(|name| Node::new(&export.url(), name)).collect();
    let Some(nodes) = nodes else { return };
    let [owner, standbys @ ..] = &nodes[..] else { unreachable!() };
    owner.mount(&[]);
    let refused = errors(&standbys[0].try_mount(&[]));
    let lines: Vec<&str> = refused.lines().collect();
    let is_told =
        matches!(lines[..], [waits, fails] if waits.contains("waiting up to") && fails.contains("in use: "));
    assert!(is_told, "a wait and its end are not on lines of their own: {refused}");
    standbys.iter().for_each(|standby| standby.mount(&["--standby"]));
    standbys.iter().for_each(|standby| standby.logs("standing by; owner: "));
    sleep(Duration::from_secs(3));
    assert!(!standbys.iter().any(Node::is_mounted), "the owner is alive");
    fs::write(owner.dir().join("file"), "contents").unwrap();
    owner.umount();

    assert!(until(|| standbys.iter().any(Node::is_mounted)), "{}", standbys[0].log());
    // Long enough for the other one to mount too.
    sleep(Duration::from_secs(4));
    let (winner, loser) =
        if standbys[0].is_mounted() { (&standbys[0], &standbys[1]) } else { (&standbys[1], &standbys[0]) };
    assert!(!loser.is_mounted(), "{}", loser.log());
    assert_eq!(fs::read_to_string(winner.dir().join("file")).unwrap(), "contents");
    winner.umount();
    assert!(until(|| loser.is_mounted()), "{}", loser.log());
    assert_eq!(fs::read_to_string(loser.dir().join("file")).unwrap(), "contents");
    loser.umount();
    export.fsck();
}

#[test]
fn umount_ends_a_standby_and_a_directory_has_one() {
    let Some(export) = Export::new() else { return };
    export.ok(&["mkfs", "-E", "mmp_update_interval=1", &export.url()]);
    let (Some(owner), Some(standby)) =
        (Node::new(&export.url(), "owner"), Node::new(&export.url(), "standby"))
    else {
        return;
    };
    owner.mount(&[]);
    standby.mount(&["-o", "standby"]);
    let second = errors(&standby.try_mount(&["--standby"]));
    assert!(second.contains("another standby waits to mount there"), "{second}");
    standby.umount();
    standby.logs("no longer standing by");
    let again = export.fails(&["umount", &text(standby.dir())]);
    assert!(again.contains("is not a mount of parext4"), "{again}");
    let refused = errors(&standby.try_mount(&["-o", "ro,standby"]));
    assert!(refused.contains("a standby writes"), "{refused}");
    owner.umount();
    // A volume without an owner is mounted at once.
    standby.mount(&["--standby"]);
    assert!(until(|| standby.is_mounted()), "{}", standby.log());
    standby.umount();
    export.fsck();
}

#[test]
fn a_standby_that_cannot_open_the_volume_says_so_once() {
    let Some(export) = Export::new() else { return };
    export.ok(&["mkfs", &export.url()]);
    let Some(export) = export.into_read_only() else { return };
    let Some(standby) = Node::new(&export.url(), "standby") else { return };
    standby.mount(&["--standby"]);
    standby.logs("not taken over: ");
    // Long enough for another attempt.
    sleep(Duration::from_secs(5));
    standby.umount();
    let log = standby.log();
    let count = |text| log.matches(text).count();
    assert_eq!((count("taking over: "), count("trying again"), count("read again")), (1, 1, 0), "{log}");
}
