//! `cat`: writes files to standard output.

use std::io::Write;

use anyhow::{Context, Result};
use parext4::device::AlignedBuf;
use parext4::{OpenOptions, Volume};

use crate::image;
use crate::image_path::ImagePath;
use crate::output;

/// Write files of a volume to standard output
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/FILE", value_parser = ImagePath::parser())]
    files: Vec<ImagePath>,
}

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    output::print(|out| {
        // Files that follow each other in one image need it opened once.
        for files in args.files.chunk_by(|a, b| a.image == b.image) {
            image::read(&files[0].image, |volume| {
                files.iter().try_for_each(|file| copy(volume, file, out).with_context(|| file.to_string()))
            })?;
        }
        Ok(())
    })
}

fn copy(volume: &Volume, file: &ImagePath, out: &mut impl Write) -> Result<()> {
    let file = volume.open_direct(&file.path, &OpenOptions::new().read(true))?;
    let mut buffer = AlignedBuf::zeroed(CHUNK);
    let mut offset = 0;
    loop {
        let count = file.read_at(&mut buffer, offset)?;
        if count == 0 {
            return Ok(());
        }
        out.write_all(&buffer[..count])?;
        if count < buffer.len() {
            return Ok(());
        }
        offset += count as u64;
    }
}
