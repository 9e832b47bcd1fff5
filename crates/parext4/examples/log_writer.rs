//! Several threads append records to one file at once. No record is lost or torn, and none waits
//! for the others.
//!
//! `cargo run --example log_writer -- disk.img` creates the image, or continues the log of one that
//! exists.

use std::error::Error;
use std::path::Path;

use parext4::{DeviceOptions, FileDevice, MkfsOptions, OpenOptions, Volume, mkfs};

const THREADS: usize = 8;
const RECORDS: usize = 1000;

/// Returns a record: a line of a length that depends on its number.
fn record(thread: usize, number: usize) -> String {
    format!("thread {thread} record {number}{}\n", ".".repeat(number % 50))
}

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: log_writer IMAGE")?;
    if !Path::new(&image).exists() {
        mkfs(&FileDevice::open(&image, &DeviceOptions::new().create(64 << 20))?, &MkfsOptions::new())?;
    }
    let volume = Volume::open(&image)?;
    let log = volume.open_file("/log", &OpenOptions::new().append(true).create(true))?;
    let before = log.size();

    let written = std::thread::scope(|scope| {
        let append = |thread| {
            let mut bytes = 0;
            for number in 0..RECORDS {
                let record = record(thread, number);
                log.append(record.as_bytes())?;
                bytes += record.len();
            }
            Ok::<_, parext4::Error>(bytes)
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || append(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum::<Result<usize, _>>()
    })?;
    // One sync makes the records of all threads durable.
    log.sync_data()?;
    assert_eq!(log.size(), before + written as u64);

    let text = volume.read_to_string("/log")?;
    println!("{} records of {THREADS} threads, {} bytes", text.lines().count(), text.len());
    drop(log);
    Ok(volume.close()?)
}
