//! A cluster that does not answer in time.

use std::thread;
use std::time::{Duration, Instant};

use parext4::{Error, MkfsOptions, Volume, VolumeOptions, mkfs};

use super::*;

/// Time that a request waits for the cluster, seconds.
const RECONNECT: u64 = 10;
/// Longest time that anything takes after that.
const SLACK: Duration = Duration::from_mins(1);

#[test]
fn a_volume_stops_when_the_cluster_does_not_answer_and_keeps_what_was_synced() {
    let Some(cluster) = CLUSTER.as_ref() else { return };
    let alone = OSD.write().unwrap_or_else(PoisonError::into_inner);
    let patient = cluster.url_of_user("gone", TENANT);
    let device = open_device(&patient, &DeviceOptions::new().create(64 << 20)).unwrap();
    mkfs(&*device, &MkfsOptions::new()).unwrap();
    let volume = Volume::open_device(device, &VolumeOptions::new()).unwrap();
    volume.close().unwrap();
    let url = format!("{patient}&reconnect={RECONNECT}");
    let device = open_device(&url, &DeviceOptions::new()).unwrap();
    let volume = Volume::open_device(Arc::clone(&device), &VolumeOptions::new()).unwrap();
    volume.write("/synced", "one").unwrap();
    volume.sync().unwrap();
    cluster.kill_osd(0).unwrap();
    let began = Instant::now();
    volume.write("/lost", vec![1; 1 << 20]).unwrap();
    let errors: Vec<Error> = thread::scope(|scope| {
        let syncs: Vec<_> = (0..4).map(|_| scope.spawn(|| volume.sync().unwrap_err())).collect();
        syncs.into_iter().map(|sync| sync.join().unwrap()).collect()
    });
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(RECONNECT) && waited < SLACK, "{waited:?}");
    let why = format!("the cluster did not answer for {RECONNECT} s");
    let is_named = |error: &Error| error.to_string().contains(&why);
    assert!(errors.iter().any(is_named), "{errors:?}");
    assert!(volume.stopped().is_some());
    let later = Instant::now();
    let error = read(&*device, 0, 4096).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(volume.close().is_err());
    drop(device);
    assert!(later.elapsed() < SLACK, "closing took {:?}", later.elapsed());

    let began = Instant::now();
    let error = open_device(&url, &DeviceOptions::new()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    assert!(began.elapsed() < SLACK, "the open took {:?}", began.elapsed());

    cluster.restart_osd(0).unwrap();
    cluster.rbd(&["ls"]).unwrap();
    // The cluster may still perform a write of the client that has given up, so the client keeps
    // the lock.
    let error = open_device(&url, &DeviceOptions::new()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
    let device = open_device(&patient, &DeviceOptions::new().takeover(true)).unwrap();
    let volume = Volume::open_device(device, &VolumeOptions::new()).unwrap();
    assert_eq!(volume.read("/synced").unwrap(), b"one");
    volume.close().unwrap();
    drop(alone);
    running().unwrap().export("gone");
}
