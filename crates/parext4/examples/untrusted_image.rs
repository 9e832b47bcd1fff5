//! Lists an image that may be damaged or hostile, and reads the start of each file.
//!
//! `cargo run --example untrusted_image -- disk.img`. The engine checks what it reads: a bad
//! structure is an `Error::Corrupt`, never undefined behaviour or an endless loop in one call. What
//! a program must limit itself are sizes and counts, which an image can state at will.

use std::error::Error;
use std::io::Read;

use parext4::{FileType, OpenOptions, VolumeOptions};

/// Limit of entries that are listed.
const MAX_ENTRIES: usize = 100_000;
/// Limit of bytes that are read of a file.
const MAX_BYTES: u64 = 64 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: untrusted_image IMAGE")?;
    // Read-only: nothing is written to the image, also if its journal needs recovery. Limits bound
    // the memory of caches.
    let options = VolumeOptions::new().read_only(true).cache_bytes(64 << 20).metadata_cache_bytes(16 << 20);
    let volume = match options.open(&image) {
        Err(parext4::Error::Corrupt(what)) => {
            println!("not a sound volume: {what}");
            return Ok(());
        }
        opened => opened?,
    };
    let mut failed = 0;
    for entry in volume.walk("/")?.take(MAX_ENTRIES) {
        let shown = entry.and_then(|entry| {
            if entry.file_type() != FileType::Regular {
                return Ok(format!("{:?} {}", entry.file_type(), entry.path().display()));
            }
            let file = volume.open_file(entry.path(), &OpenOptions::read_only())?;
            let (size, mut start) = (file.size(), Vec::new());
            // Not `volume.read`: the stated size can be terabytes.
            let read = file.into_cursor().take(MAX_BYTES).read_to_end(&mut start);
            let checksum = start.iter().fold(0_u32, |sum, &byte| sum.rotate_left(1) ^ u32::from(byte));
            let state = read.map_or_else(|error| error.to_string(), |_| format!("{checksum:08x}"));
            Ok(format!("{} {size} bytes {state}", entry.path().display()))
        });
        match shown {
            Ok(line) => println!("{line}"),
            Err(error) => {
                failed += 1;
                println!("unreadable: {error}");
            }
        }
    }
    println!("{failed} unreadable");
    Ok(())
}
