//! Threads that write to one file, direct and buffered, while the server is killed.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::sector::{SECTOR, Stamp, filled};
use testkit::settings;
use testkit::volume::{DirectFiles as _, assert_clean_file};

const WRITERS: u64 = 6;
/// Blocks of a writer, and sectors of a block.
const BLOCKS: u64 = 96;
const BLOCK: u64 = 16;

/// One of the threads.
struct Writer {
    number: u64,
    rng: Rng,
    sequence: u64,
    /// By block: the number of the newest write.
    newest: Vec<u64>,
}

impl Writer {
    fn first(&self, block: u64) -> u64 {
        // The blocks of writers alternate, so that neighbours write to the same extents.
        (block * WRITERS + self.number) * BLOCK
    }

    fn expected(&self, block: u64) -> Vec<u8> {
        match self.newest[block as usize] {
            0 => vec![0; BLOCK as usize * SECTOR],
            sequence => {
                let stamp = Stamp { file: 1, writer: self.number as u32, sequence, origin: 0 };
                filled(self.first(block), BLOCK, stamp)
            }
        }
    }

    fn work(&mut self, volume: &Volume, stop: &AtomicBool) {
        let direct = volume.direct_file("/file").unwrap();
        let buffered = direct.buffered().unwrap();
        while !stop.load(Ordering::Relaxed) {
            let block = self.rng.below(BLOCKS);
            let offset = self.first(block) * SECTOR as u64;
            let is_direct = self.number.is_multiple_of(2);
            match self.rng.below(20) {
                0..12 => {
                    self.sequence += 1;
                    self.newest[block as usize] = self.sequence;
                    let data = self.expected(block);
                    if is_direct {
                        direct.write_all_at(&data, offset)
                    } else {
                        buffered.write_all_at(&data, offset)
                    }
                    .unwrap();
                }
                12 => direct.sync_data().unwrap(),
                _ => {
                    let mut seen = vec![0xee; BLOCK as usize * SECTOR];
                    let len = if is_direct {
                        direct.read_at(&mut seen, offset).unwrap()
                    } else {
                        buffered.read_at(&mut seen, offset).unwrap()
                    };
                    seen.truncate(len);
                    seen.resize(BLOCK as usize * SECTOR, 0);
                    assert!(seen == self.expected(block), "writer {} block {block}", self.number);
                }
            }
        }
    }
}

#[test]
fn writers_of_one_file_lose_nothing() {
    let seed = settings::seed("writers");
    let Some(mut served) = Served::start(Kind::Caching, seed) else { return };
    let volume = served.volume(&VolumeOptions::new().cache_bytes(4 << 20));
    volume.create_direct("/file").unwrap();
    volume.sync().unwrap();
    let stop = AtomicBool::new(false);
    let mut writers: Vec<_> = (0..WRITERS)
        .map(|number| Writer {
            number,
            rng: Rng::new(seed, number),
            sequence: 0,
            newest: vec![0; BLOCKS as usize],
        })
        .collect();
    std::thread::scope(|scope| {
        for writer in &mut writers {
            scope.spawn(|| writer.work(&volume, &stop));
        }
        (0..settings::nbd_kills()).for_each(|_| drop(served.kill()));
        stop.store(true, Ordering::Relaxed);
    });
    volume.sync().unwrap();
    let image = served.kill();
    let writes: u64 = writers.iter().map(|writer| writer.sequence).sum();
    eprintln!("{} kills, {writes} writes", settings::nbd_kills());
    let recovered = recover(&image);
    let file = recovered.direct_file("/file").unwrap();
    for writer in &writers {
        for block in 0..BLOCKS {
            let mut seen = vec![0; BLOCK as usize * SECTOR];
            file.read_at(&mut seen, writer.first(block) * SECTOR as u64).unwrap();
            assert!(seen == writer.expected(block), "writer {} block {block} after a sync", writer.number);
        }
    }
    drop(file);
    recovered.close().unwrap();
    assert_clean_file(&image, "after a sync");
    volume.close().unwrap();
}
