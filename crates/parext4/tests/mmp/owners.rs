//! Taking a volume over from an owner that has not closed it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parext4::mmp::{MmpUse, OwnerEvidence};
use parext4::{Device, Error, Volume, VolumeOptions};
use parext4_format::mmp::SEQUENCE_FSCK;

use super::scale::*;

#[test]
fn a_silent_owner_loses_its_volume() {
    let device = Arc::new(volume());
    write_as_other(&*device, 7);
    assert_eq!(
        state(&*device).to_string(),
        "node other-node, device sdz, last update 2000-02-29 00:00:00 UTC"
    );
    let began = Instant::now();
    let volume = open_with(&device, OwnerEvidence::Forced).unwrap();
    assert!(began.elapsed() >= SECOND * WAIT);
    assert!(began.elapsed() < 2 * SECOND * WAIT, "{:?}", began.elapsed());
    volume.close().unwrap();
    assert_eq!(state(&*device).usage, MmpUse::Clean);
}

#[test]
fn a_silence_that_the_caller_has_seen_is_not_waited_for_again() {
    for (seen, waits) in [(7, 1), (8, 2)] {
        let device = Arc::new(volume());
        write_as_other(&*device, 7);
        let began = Instant::now();
        let volume = open_with(&device, OwnerEvidence::Seen(seen)).unwrap();
        let took = began.elapsed();
        assert!(took >= waits * SECOND * WAIT && took < (waits + 1) * SECOND * WAIT, "{seen}: {took:?}");
        volume.close().unwrap();
    }
}

#[test]
fn a_third_machine_must_wait_for_as_long_as_the_owner_asked() {
    let device = Arc::new(volume());
    write_block(&*device, 7, 20);
    thread::scope(|scope| {
        let second = scope.spawn(|| open_with(&device, OwnerEvidence::Forced));
        while state(&*device).sequence == 7 {
            thread::yield_now();
        }
        assert_eq!(state(&*device).check_interval, 20, "the owner's lease may last as long");
        second.join().unwrap().unwrap().close().unwrap();
    });
}

#[test]
fn an_owner_that_updates_its_block_keeps_its_volume() {
    let device = Arc::new(volume());
    write_as_other(&*device, 7);
    let over = AtomicBool::new(false);
    let refused = thread::scope(|scope| {
        scope.spawn(|| {
            for sequence in 8.. {
                thread::sleep(SECOND);
                if over.load(Ordering::Relaxed) {
                    return;
                }
                write_as_other(&*device, sequence);
            }
        });
        // Asks for eleven seconds of silence, which the thread interrupts after a tenth of one.
        let refused = open_in(&device, OwnerEvidence::Forced, 10 * SECOND);
        over.store(true, Ordering::Relaxed);
        refused
    });
    let Err(Error::Busy(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("owner is alive: node other-node"), "{why}");
    assert_eq!(state(&*device).usage, MmpUse::InUse);
}

#[test]
fn a_volume_that_e2fsck_has_is_not_taken_over() {
    let device = Arc::new(volume());
    write_as_other(&*device, SEQUENCE_FSCK);
    for evidence in [OwnerEvidence::Forced, OwnerEvidence::Seen(SEQUENCE_FSCK)] {
        let Err(Error::Busy(why)) = open_with(&device, evidence) else { panic!("taken over") };
        assert!(why.contains("other-node") && why.contains("clear_mmp"), "{why}");
        assert_eq!(state(&*device).usage, MmpUse::Fsck);
    }
}

fn open_with(device: &Arc<impl Device + 'static>, evidence: OwnerEvidence) -> Result<Volume, Error> {
    open_in(device, evidence, SECOND)
}

/// Opens a volume with another length of a second.
fn open_in(
    device: &Arc<impl Device + 'static>,
    evidence: OwnerEvidence,
    second: Duration,
) -> Result<Volume, Error> {
    let mmp = short().second(second).evidence(evidence);
    let options = VolumeOptions::new().mmp(mmp).commit_interval(None);
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &options)
}
