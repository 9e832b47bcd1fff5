//! Uses a volume from tasks of tokio. Calls of the engine block on the device, so each runs on a
//! thread for blocking work.
//!
//! `cargo run --example tokio -- disk.img` creates the image.

use std::error::Error;

use parext4::{DeviceOptions, FileDevice, MkfsOptions, OpenOptions, Volume, mkfs};
use tokio::task::{JoinSet, spawn_blocking};

const TASKS: u64 = 8;
const BLOCK: usize = 4096;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let image = std::env::args_os().nth(1).ok_or("usage: tokio IMAGE")?;
    let volume = spawn_blocking(move || -> Result<_, Box<dyn Error + Send + Sync>> {
        mkfs(&FileDevice::open(&image, &DeviceOptions::new().create(64 << 20))?, &MkfsOptions::new())?;
        Ok(Volume::open(&image)?)
    })
    .await??;

    let file = volume.open_file("/data", &OpenOptions::read_write().create(true))?;
    let mut writes = JoinSet::new();
    for task in 0..TASKS {
        // A clone is another handle of the same file. Writes of disjoint bytes do not wait for each
        // other.
        let file = file.clone();
        let data = vec![u8::try_from(task)?; BLOCK];
        writes.spawn_blocking(move || file.write_all_at(&data, task * BLOCK as u64));
    }
    while let Some(written) = writes.join_next().await {
        written??;
    }
    spawn_blocking(move || file.sync_data()).await??;

    let other = volume.clone();
    let contents = spawn_blocking(move || other.read("/data")).await??;
    assert!(contents.chunks(BLOCK).zip(0..).all(|(block, task)| block == [task; BLOCK]));
    println!("{TASKS} tasks wrote {} bytes", contents.len());
    Ok(spawn_blocking(move || volume.close()).await??)
}
