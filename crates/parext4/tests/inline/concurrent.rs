//! Many threads on one file and one directory while their contents leave the inode.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parext4::{File, NewInode, OpenOptions, Volume, XattrMode};
use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::assert_clean;

use super::{new_volume, open};

/// Bytes of a slot, which one thread writes at once.
const SLOT: usize = 8;
/// Slots of a file: contents leave the inode at the sixteenth.
const SLOTS: u64 = 125;
const WRITERS: u64 = 12;
const FILES: u64 = 25;
const WRITES: u64 = 30;

fn slot(number: u64, sequence: u64) -> [u8; SLOT] {
    let [a, b] = u16::try_from(sequence + 1).unwrap().to_le_bytes();
    let n = u8::try_from(number).unwrap();
    [0xa5, n, a, b, !a, !b, !n, 0x5a]
}

/// Checks that each slot is empty, or was written as a whole.
fn check_slots(bytes: &[u8], what: &str) {
    for (number, found) in (0..).zip(bytes.chunks(SLOT)) {
        let is_empty = found.iter().all(|&byte| byte == 0);
        let is_whole = found.len() < SLOT || (0..WRITES).any(|sequence| found == slot(number, sequence));
        assert!(is_empty || is_whole, "{what}: slot {number} is {found:?}");
    }
}

/// Every slot is written by one thread; a thread that sets the size removes whole slots.
fn race(volume: &Volume, path: &str, seed: u64, cuts: bool) -> BTreeMap<u64, u64> {
    let file = volume.open_file(path, &OpenOptions::read_write().create_new(true)).unwrap();
    let over = AtomicBool::new(false);
    let write = |file: &File, writer: u64| {
        let mut rng = Rng::new(seed, writer);
        let mut written = BTreeMap::new();
        for sequence in 0..WRITES {
            let most = if sequence < WRITES / 2 { 24 } else { SLOTS };
            let number = rng.below(most / WRITERS) * WRITERS + writer;
            file.write_all_at(&slot(number, sequence), number * SLOT as u64).unwrap();
            written.insert(number, sequence);
        }
        written
    };
    let read = |file: &File| {
        let mut bytes = [0; 1024];
        while !over.load(Ordering::Relaxed) {
            let count = file.read_at(&mut bytes, 0).unwrap();
            check_slots(&bytes[..count], path);
            let _ = file.fiemap(0..u64::MAX).unwrap();
            let _ = file.seek_data(0);
            assert!(file.metadata().size <= SLOTS * SLOT as u64);
        }
    };
    let disturb = |file: &File| {
        let mut rng = Rng::new(seed, 100);
        while !over.load(Ordering::Relaxed) {
            let note = vec![1; usize::try_from(rng.below(40)).unwrap()];
            file.inode_ref().set_xattr(b"user.note", &note, XattrMode::Any).unwrap();
            if cuts {
                file.set_len(rng.below(30) * SLOT as u64).unwrap();
            }
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let helpers =
            [scope.spawn(|| read(&file)), scope.spawn(|| read(&file)), scope.spawn(|| disturb(&file))];
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let file = file.clone();
                scope.spawn(move || write(&file, writer))
            })
            .collect();
        let written = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        helpers.into_iter().for_each(|helper| helper.join().unwrap());
        written
    })
}

#[test]
fn writers_and_readers_race_with_the_move() {
    let seed = settings::seed("inline: concurrent");
    let device = Arc::new(new_volume(256));
    let volume = open(&device);
    for number in 0..FILES {
        let path = format!("/file{number}");
        let written = race(&volume, &path, seed + number, number % 2 == 1);
        let contents = volume.read(&path).unwrap();
        check_slots(&contents, &path);
        for (number, sequence) in written {
            let at = usize::try_from(number).unwrap() * SLOT;
            let found = contents.get(at..at + SLOT).unwrap_or(&[0; SLOT]);
            let cut = path.trim_start_matches("/file").parse::<u64>().unwrap() % 2 == 1;
            assert!(cut || found == slot(number, sequence), "{path}: slot {number}");
        }
    }
    volume.close().unwrap();
    assert_clean(&device, "writers and readers");
}

/// Appends of several threads, which claim their offsets only once the contents are in blocks.
#[test]
fn appends_race_with_the_move() {
    let device = Arc::new(new_volume(256));
    let volume = open(&device);
    for number in 0..FILES {
        let path = format!("/log{number}");
        let file = volume.open_file(&path, &OpenOptions::read_write().create_new(true)).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let file = file.clone();
                scope.spawn(move || {
                    for _ in 0..20 {
                        file.append(&[u8::try_from(writer + 1).unwrap(); 7]).unwrap();
                    }
                });
            }
        });
        drop(file);
        let contents = volume.read(&path).unwrap();
        assert_eq!(contents.len(), 7 * 20 * usize::try_from(WRITERS).unwrap());
        for writer in 1..=WRITERS {
            let records = contents.chunks(7).filter(|record| record.iter().all(|&b| u64::from(b) == writer));
            assert_eq!(records.count(), 20, "{path}: writer {writer}");
        }
    }
    volume.close().unwrap();
    assert_clean(&device, "appends");
}

/// Names that stay are listed exactly once while other names come and go and the entries move to a
/// block.
#[test]
fn a_listing_races_with_the_move_of_its_entries() {
    let device = Arc::new(new_volume(256));
    let volume = open(&device);
    for number in 0..FILES {
        let path = format!("/dir{number}");
        let dir = volume.create_dir(&path, 0o755).unwrap();
        for name in ["one", "two"] {
            dir.create(name.as_bytes(), &NewInode::new()).unwrap();
        }
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let dir = dir.clone();
                scope.spawn(move || {
                    for round in 0..12 {
                        let name = format!("t{thread}-{round}");
                        dir.create(name.as_bytes(), &NewInode::new()).unwrap();
                        dir.set_xattr(b"user.note", &[3; 10], XattrMode::Any).unwrap();
                        if round < 6 {
                            dir.unlink(name.as_bytes()).unwrap();
                        }
                    }
                });
            }
            for _ in 0..20 {
                let names = volume.read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
                let stay = names.filter(|name| name == "one" || name == "two").count();
                assert_eq!(stay, 2, "{path}");
            }
        });
        assert_eq!(volume.read_dir(&path).unwrap().count(), 2 + 3 * 6);
    }
    volume.close().unwrap();
    assert_clean(&device, "listings");
}
