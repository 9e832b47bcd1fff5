//! An OSD that is killed and restarted under load.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parext4::{MkfsOptions, Volume, VolumeOptions, mkfs};

use super::*;

const THREADS: u32 = 4;
const KILLS: u32 = 2;
/// Least number of files that each thread writes.
const FILES: u32 = 4;

/// Returns the contents of a file.
fn contents(thread: u32, file: u32) -> Vec<u8> {
    (0..40_000 + file).map(|at| (at.wrapping_mul(31) ^ thread ^ file << 3) as u8).collect()
}

#[test]
fn a_restarted_osd_costs_time_and_nothing_else() {
    let Some(cluster) = CLUSTER.as_ref() else { return };
    let _alone = OSD.write().unwrap_or_else(PoisonError::into_inner);
    let url = cluster.url_of_user("osd", TENANT);
    let device = open_device(&url, &DeviceOptions::new().create(256 << 20)).unwrap();
    mkfs(&*device, &MkfsOptions::new()).unwrap();
    let volume = Volume::open_device(Arc::clone(&device), &VolumeOptions::new()).unwrap();
    let over = AtomicU32::new(0);
    let files: Vec<u32> = std::thread::scope(|scope| {
        let (volume, over) = (&volume, &over);
        let work = |thread| {
            scope.spawn(move || {
                let mut file = 0;
                while (over.load(Ordering::Relaxed) == 0 || file < FILES) && file < 1000 {
                    volume.write(format!("/{thread}-{file}"), contents(thread, file)).expect("write");
                    volume.sync().expect("sync");
                    file += 1;
                }
                file
            })
        };
        let workers: Vec<_> = (0..THREADS).map(work).collect();
        for _ in 0..KILLS {
            std::thread::sleep(Duration::from_millis(300));
            cluster.kill_osd(0).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            cluster.restart_osd(0).unwrap();
            // Answers when the OSD serves the pool again.
            cluster.rbd(&["ls"]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
        over.store(1, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    volume.close().unwrap();
    drop(device);
    let reader = open_device(&url, &DeviceOptions::new().read_only(true)).unwrap();
    let volume = Volume::open_device(reader, &VolumeOptions::new().read_only(true)).unwrap();
    for (thread, &count) in (0..).zip(&files) {
        for file in 0..count {
            assert!(
                volume.read(format!("/{thread}-{file}")).unwrap() == contents(thread, file),
                "{thread}-{file}"
            );
        }
    }
}
