//! A random workload on names and files. After each kill of the server, the image is what a loss of
//! power on both machines would leave, and must hold all that was synced.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use testkit::durability::DurabilityModel;
use testkit::ops::Runner;
use testkit::settings;
use testkit::volume::assert_clean_file;
use testkit::workload::Workload;

fn locked(model: &Mutex<DurabilityModel>) -> MutexGuard<'_, DurabilityModel> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Limit of the kills of a test that finds no name.
const MOST_KILLS: u64 = 60;

/// Runs operations until `stop`.
fn work(volume: &Volume, model: &Mutex<DurabilityModel>, seed: u64, stop: &AtomicBool) -> u64 {
    let mut workload = Workload::new(seed);
    let mut operations = 0;
    while !stop.load(Ordering::Relaxed) {
        let (op, content) = workload.next(locked(model).tree());
        locked(model).begin(op, content);
        Runner::new(volume).run(&op, content).unwrap_or_else(|error| panic!("seed {seed}: {op:?}: {error}"));
        locked(model).succeeded();
        operations += 1;
    }
    operations
}

fn kill_often(name: &str, kind: Kind) {
    let seed = settings::seed(name);
    let Some(mut served) = Served::start(kind, seed) else { return };
    let volume = served.volume(&untimed());
    volume.remove_dir("/lost+found").ok();
    let model = Mutex::new(DurabilityModel::new(4096));
    let stop = AtomicBool::new(false);
    let check = |model: &DurabilityModel, image: &Path, when: &str| {
        let recovered = recover(image);
        let names =
            model.check(&recovered).unwrap_or_else(|why| panic!("{name}, seed {seed}, {when}: {why}"));
        recovered.close().unwrap();
        assert_clean_file(image, &format!("{name}, seed {seed}, {when}"));
        names
    };
    let (operations, names) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&volume, &model, seed, &stop));
        let (mut names, mut kill) = (0, 0);
        // Between slow syncs a kill finds no name.
        while kill < settings::nbd_kills() || (names == 0 && kill < MOST_KILLS) {
            let syncs = locked(&model).clone();
            let image = served.kill();
            // The image holds all that was synced before the kill, and any of the operations up to
            // now.
            let possible = locked(&model).with_syncs_of(&syncs);
            names += check(&possible, &image, &format!("kill {kill}"));
            kill += 1;
        }
        stop.store(true, Ordering::Relaxed);
        (worker.join().unwrap(), names)
    });
    eprintln!("{name}: {} kills, {operations} operations, {names} names found", settings::nbd_kills());
    assert!(names > 0, "no kill found a name");
    volume.sync().unwrap();
    locked(&model).all_durable();
    let image = served.kill();
    check(&locked(&model), &image, "after a sync");
    volume.close().unwrap();
    served.server.kill();
    check(&locked(&model), &served.dir.path().join("image"), "after the close");
}

#[test]
fn nbdkit_loses_its_cache() {
    kill_often("nbdkit_loses_its_cache", Kind::Caching);
}

#[test]
fn nbdkit_keeps_its_writes() {
    kill_often("nbdkit_keeps_its_writes", Kind::File);
}

#[test]
fn qemu_nbd_keeps_its_writes() {
    kill_often("qemu_nbd_keeps_its_writes", Kind::Qemu);
}
