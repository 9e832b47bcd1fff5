//! Damages the log of an image that a crash left, with its fast commits, and replays it.

#![no_main]

use std::sync::{Arc, LazyLock};

use parext4::{Device, Volume, VolumeOptions, replay_in_memory, replay_journal};
use parext4_fuzz::{Seed, damaged, seeds};

static SEEDS: LazyLock<Vec<Seed>> = LazyLock::new(|| {
    seeds(|anatomy| {
        let journal = anatomy.only_journal();
        journal.has_log().then_some(journal)
    })
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let image = damaged(&SEEDS, data);
    let device = |copy: parext4::MemDevice| -> Arc<dyn Device> { Arc::new(copy) };
    let in_memory = replay_in_memory(device(image.fork()));
    let on_device = replay_journal(device(image.fork()));
    assert_eq!(in_memory.is_ok(), on_device.is_ok(), "{in_memory:?} {on_device:?}");
    let Ok(volume) = Volume::open_device(device(image), &VolumeOptions::new().commit_interval(None)) else {
        return;
    };
    let _ = volume.write("/after", "the replay");
    let _ = volume.close();
});
