//! Copies a tree out of an image.
//!
//! `cargo run --example copy_out -- disk.img /src copy-of-src`. The command `parext4 get` also
//! keeps attributes, links and holes.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;

use parext4::{FileType, OpenOptions, VolumeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(image), Some(from), Some(to)) = (args.next(), args.next(), args.next()) else {
        return Err("usage: copy_out IMAGE DIRECTORY TARGET".into());
    };
    let (from, to) = (Path::new(&from), Path::new(&to));
    let volume = VolumeOptions::new().read_only(true).open(image)?;
    fs::create_dir(to)?;
    let (mut files, mut bytes) = (0, 0);
    for entry in volume.walk(from)? {
        let entry = entry?;
        // Names in a directory never contain a slash or `..`, so the copy stays below `to`.
        let target = to.join(entry.path().strip_prefix(from)?);
        match entry.file_type() {
            FileType::Directory => fs::create_dir(target)?,
            FileType::Regular => {
                let mut source = volume.open_file(entry.path(), &OpenOptions::read_only())?.into_cursor();
                bytes += io::copy(&mut source, &mut fs::File::create_new(target)?)?;
                files += 1;
            }
            other => eprintln!("{}: {other:?} is not copied", entry.path().display()),
        }
    }
    println!("{files} files, {bytes} bytes");
    Ok(())
}
