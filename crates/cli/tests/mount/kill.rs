//! The server is killed under load: the image recovers, and what was synced is there.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::bed::Bed;
use crate::common::text;

const WRITERS: usize = 4;
const RECORD: usize = 4096;

/// The record with this number.
fn record(writer: usize, number: u64) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(writer + 1).unwrap(); RECORD];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Appends records and syncs each, beside names that come and go, until that fails.
fn write(dir: &Path, writer: usize, synced: &AtomicU64) -> std::io::Result<()> {
    let file =
        File::options().write(true).create(true).truncate(true).open(dir.join(format!("log{writer}")))?;
    File::open(dir)?.sync_all()?;
    for number in 0.. {
        file.write_all_at(&record(writer, number), number * RECORD as u64)?;
        file.sync_data()?;
        synced.store(number + 1, Ordering::SeqCst);
        let name = |number: u64| dir.join(format!("name{writer}.{}", number % 7));
        std::fs::write(name(number), vec![1; 10_000])?;
        std::fs::rename(name(number), name(number + 1))?;
    }
    Ok(())
}

#[test]
fn what_was_synced_survives_the_server() {
    for round in 0..6_u64 {
        let Some(bed) = Bed::new(&["--block-size", "4096"]) else { return };
        let options = if round % 2 == 0 { "cache=kernel" } else { "cache=direct" };
        let mut server = bed.serve(options);
        let synced: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (writer, synced) in synced.iter().enumerate() {
                let dir = bed.dir();
                scope.spawn(move || write(dir, writer, synced).unwrap_err());
            }
            std::thread::sleep(Duration::from_millis(150 + 70 * round));
            server.kill().unwrap();
            server.wait().unwrap();
        });
        bed.umount();
        bed.bench().ok(&["recover", &text(&bed.bench().image())]);
        bed.bench().fsck();
        bed.mount(options);
        for (writer, synced) in synced.iter().enumerate() {
            let synced = synced.load(Ordering::SeqCst);
            let file = File::open(bed.path(&format!("log{writer}"))).unwrap();
            for number in 0..synced {
                let mut bytes = vec![0; RECORD];
                file.read_exact_at(&mut bytes, number * RECORD as u64).unwrap();
                assert!(
                    bytes == record(writer, number),
                    "round {round}, writer {writer}, record {number} of {synced}"
                );
            }
        }
        bed.finish();
    }
}
