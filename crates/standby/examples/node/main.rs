//! A machine of a test: opens a volume on a network, or stands by for it, and writes blocks that
//! name it until it fails or its input ends.
//!
//! `node NAME URL [--standby]` prints a line for each step: `standing by`, `open`, `covered` once
//! it has written and synced every block, then `failed: ERROR` if a write fails, and `closed` or
//! `not closed: ERROR`.
//!
//! `node --check IMAGE` prints how many blocks each machine wrote last, and fails if a block is
//! torn.

mod block;
mod writers;

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, stdin};

use parext4::{DeviceOptions, OpenOptions, Volume, VolumeOptions};
use parext4_standby::{Standby, Step};
use parext4_storage::{open_volume, open_volume_device};

use block::{BLOCK, BLOCKS, Found};

/// The file whose blocks all machines write.
const FILE: &str = "/blocks";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.iter().map(OsString::as_os_str).collect::<Vec<_>>()[..] {
        [check, image] if check == "--check" => check_image(image),
        [name, url] => run(name, open_volume(url, &VolumeOptions::new())?),
        [name, url, standby] if standby == "--standby" => {
            let standby = Standby::new(url, DeviceOptions::new(), VolumeOptions::new());
            let volume = standby.take_over(|step| match step {
                Step::TakesOver => println!("taking over"),
                _ => println!("standing by"),
            })?;
            run(name, volume)
        }
        _ => Err("usage: node NAME URL [--standby], or node --check IMAGE".into()),
    }
}

/// Writes until a write fails or the input ends, then closes the volume.
fn run(name: &OsStr, volume: Volume) -> Result<(), Box<dyn Error>> {
    println!("open");
    let name = name.to_str().and_then(|name| name.chars().next()).ok_or("the name is no letter")?;
    let wrote = writers::run(&volume, name, || {
        let _ = stdin().lock().lines().next();
    });
    if let Err(error) = &wrote {
        println!("failed: {error}");
    }
    match volume.close() {
        Ok(()) => println!("closed"),
        Err(error) => println!("not closed: {error}"),
    }
    Ok(wrote?)
}

/// Counts the blocks of each machine.
fn check_image(image: &OsStr) -> Result<(), Box<dyn Error>> {
    let device = open_volume_device(image, &DeviceOptions::new().read_only(true))?;
    let volume = Volume::open_device(device, &VolumeOptions::new().read_only(true))?;
    let file = volume.open_file(FILE, &OpenOptions::new().read(true))?;
    let mut writers = std::collections::BTreeMap::<char, u64>::new();
    let mut bytes = vec![0; BLOCK];
    for number in 0..BLOCKS {
        file.read_exact_at(&mut bytes, number * BLOCK as u64)?;
        match block::parse(&bytes, number) {
            Found::By(name) => *writers.entry(name).or_default() += 1,
            Found::Torn => return Err(format!("block {number} is torn").into()),
        }
    }
    let counts: Vec<String> = writers.iter().map(|(name, count)| format!("{name} {count}")).collect();
    println!("{}", counts.join(" "));
    Ok(())
}
