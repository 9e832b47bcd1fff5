//! One thread keeps many operations on one file in flight. On an image file they are requests of
//! io_uring, where it is allowed.
//!
//! `cargo run --example io_queue -- disk.img` creates the image.

use std::error::Error;

use parext4::{
    AlignedBuf, DeviceOptions, FileDevice, IoFlags, IoRequest, MkfsOptions, OpenOptions, Volume, mkfs,
};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 1000;
/// Operations in flight.
const DEPTH: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: io_queue IMAGE")?;
    mkfs(&FileDevice::open(&image, &DeviceOptions::new().create(64 << 20))?, &MkfsOptions::new())?;
    let volume = Volume::open(&image)?;
    let file = volume.open_direct("/data", &OpenOptions::read_write().create(true))?;

    let mut queue = volume.io_queue(u32::try_from(DEPTH)?);
    let mut free: Vec<AlignedBuf> = (0..DEPTH).map(|_| AlignedBuf::zeroed(BLOCK)).collect();
    let mut done = Vec::new();
    let (mut next, mut finished) = (0, 0);
    while finished < BLOCKS {
        // The queue owns a buffer until the completion returns it.
        while next < BLOCKS
            && let Some(mut buf) = free.pop()
        {
            buf[..8].copy_from_slice(&next.to_le_bytes());
            let request = IoRequest::Write { buf, len: BLOCK, offset: next * BLOCK as u64 };
            queue.submit(&file, request, next, IoFlags::new());
            next += 1;
        }
        queue.harvest(&mut done)?;
        for completion in done.drain(..) {
            let written =
                completion.result.map_err(|error| format!("block {}: {error}", completion.token))?;
            assert_eq!(written, BLOCK as u64);
            free.extend(completion.buf);
            finished += 1;
        }
    }
    // The volume cannot be closed while it has a queue.
    drop(queue);
    file.sync_data()?;

    let mut block = [0; BLOCK];
    for number in 0..BLOCKS {
        file.read_exact_at(&mut block, number * BLOCK as u64)?;
        assert_eq!(block[..8], number.to_le_bytes());
    }
    println!("{BLOCKS} blocks written by one thread, up to {DEPTH} at a time");
    drop(file);
    Ok(volume.close()?)
}
