//! Seizing the volume of an owner.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use parext4::Error;
use parext4::mmp::{MmpUse, seize};
use parext4_format::mmp::SEQUENCE_FSCK;

use super::scale::*;

#[test]
fn a_silent_owner_loses_its_volume() {
    let device = volume();
    write_as_other(&device, 7);
    assert_eq!(
        state(&device).to_string(),
        "node other-node, device sdz, last update 2000-02-29 00:00:00 UTC"
    );
    let began = Instant::now();
    seize(&device, &short()).unwrap();
    assert!(began.elapsed() >= SECOND * WAIT);
    assert_eq!(state(&device).usage, MmpUse::Clean);
}

#[test]
fn an_owner_that_updates_its_block_keeps_its_volume() {
    let device = volume();
    write_as_other(&device, 7);
    let over = AtomicBool::new(false);
    let refused = thread::scope(|scope| {
        scope.spawn(|| {
            for sequence in 8.. {
                thread::sleep(SECOND);
                if over.load(Ordering::Relaxed) {
                    return;
                }
                write_as_other(&device, sequence);
            }
        });
        let refused = seize(&device, &short());
        over.store(true, Ordering::Relaxed);
        refused
    });
    let Err(Error::Busy(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("owner is alive: node other-node"), "{why}");
    assert_eq!(state(&device).usage, MmpUse::InUse);
}

#[test]
fn a_volume_that_e2fsck_has_is_not_seized() {
    let device = volume();
    write_as_other(&device, SEQUENCE_FSCK);
    let Err(Error::Busy(why)) = seize(&device, &short()) else { panic!("seized") };
    assert!(why.contains("other-node") && why.contains("clear_mmp"), "{why}");
    assert_eq!(state(&device).usage, MmpUse::Fsck);
}
