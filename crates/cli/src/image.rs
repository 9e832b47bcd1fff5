//! Images: paths into them, opening and closing them.

use std::ffi::{OsStr, OsString};
use std::io::IoSliceMut;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::builder::{OsStringValueParser, TypedValueParser};
use parext4::device::{AlignedBuf, Direct};
use parext4::{Device, FileDevice, FileOptions, OpenOptions, Volume};

/// A path inside an image, written `IMAGE:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePath {
    /// The image file or block device.
    pub image: PathBuf,
    /// The absolute path inside.
    pub path: PathBuf,
}

impl ImagePath {
    /// Splits at the first `:/`.
    fn parse(text: OsString) -> Result<Self, String> {
        let bytes = text.into_vec();
        let colon = bytes.windows(2).position(|pair| pair == b":/").filter(|&colon| colon > 0);
        let colon = colon.ok_or("expected IMAGE:/path")?;
        let path = OsStr::from_bytes(&bytes[colon + 1..]).into();
        Ok(Self { image: OsStr::from_bytes(&bytes[..colon]).into(), path })
    }

    /// The parser for clap.
    pub fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(Self::parse)
    }
}

/// Whether `path` ends in `/.` and so stands for the contents of a directory, as in `cp -a SRC/. DEST`.
pub fn means_contents(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes == b"." || bytes.ends_with(b"/.")
}

/// Opens the image as a device: direct where possible, locked against other writers.
///
/// A device whose sectors are larger than the volume's blocks is opened through the page cache, which has no
/// such limit.
pub fn open_device(image: &Path, options: FileOptions) -> Result<Arc<dyn Device>> {
    let device = FileDevice::open(image, &options)?;
    let block_size = block_size(&device).with_context(|| format!("reading {}", image.display()))?;
    if device.is_direct() && block_size.is_some_and(|size| device.sector_size() > size) {
        // The lock is the open file's: it must be given up first.
        drop(device);
        return Ok(Arc::new(FileDevice::open(image, &options.direct(Direct::Never))?));
    }
    Ok(Arc::new(device))
}

/// The block size that the superblock states, in bytes. Whether it is a superblock is for the engine to say.
fn block_size(device: &dyn Device) -> std::io::Result<Option<u32>> {
    // kernel documentation, "The Super Block": s_log_block_size, at 0x18 of the superblock at 1024.
    const LOG_BLOCK_SIZE: usize = 1024 + 0x18;
    let mut start = AlignedBuf::zeroed(4096);
    if device.size() < start.len() as u64 {
        return Ok(None);
    }
    device.read_at(0, &mut [IoSliceMut::new(&mut start)])?;
    let field = start[LOG_BLOCK_SIZE..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    Ok(1024_u32.checked_shl(field).filter(|_| field <= 6))
}

/// Runs `work` on the volume in `image`, which nobody else writes meanwhile, and changes nothing.
pub fn read<R>(image: &Path, work: impl FnOnce(&Volume) -> Result<R>) -> Result<R> {
    with_volume(image, &OpenOptions::read_only(), work)
}

/// Runs `work` on the volume in `image`, which nobody else uses meanwhile, and closes it.
pub fn write<R>(image: &Path, work: impl FnOnce(&Volume) -> Result<R>) -> Result<R> {
    with_volume(image, &OpenOptions::default(), work)
}

/// Runs `work` on the volume in `image`, opened as `options` say, and closes it.
pub fn with_volume<R>(
    image: &Path,
    options: &OpenOptions,
    work: impl FnOnce(&Volume) -> Result<R>,
) -> Result<R> {
    let device = open_device(image, FileOptions::new().read_only(options.read_only))?;
    let volume = Volume::open(device, options).with_context(|| image.display().to_string())?;
    let result = work(&volume);
    let closed = volume.close().with_context(|| format!("closing {}", image.display()));
    // The first error is the cause of the second.
    let value = result?;
    closed?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::{ImagePath, means_contents};
    use std::path::Path;

    fn parse(text: &str) -> Option<(String, String)> {
        let parsed = ImagePath::parse(text.into()).ok()?;
        Some((parsed.image.to_str()?.to_owned(), parsed.path.to_str()?.to_owned()))
    }

    #[test]
    fn paths_split_at_the_first_colon_slash() {
        let pair = |image: &str, path: &str| Some((image.to_owned(), path.to_owned()));
        assert_eq!(parse("a.img:/"), pair("a.img", "/"));
        assert_eq!(parse("/x/a.img:/dir/file"), pair("/x/a.img", "/dir/file"));
        assert_eq!(parse("a:b.img:/c:/d"), pair("a:b.img", "/c:/d"));
        for text in ["", "a.img", "a.img:file", ":/file", "/a/b"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_final_dot_means_contents() {
        assert!(means_contents(Path::new("a/.")) && means_contents(Path::new(".")));
        assert!(!means_contents(Path::new("a")) && !means_contents(Path::new("a/.b")));
        assert!(!means_contents(Path::new("a.")) && !means_contents(Path::new("a/..")));
    }
}
