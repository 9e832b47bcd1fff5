//! Where the bytes of an archive go.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Context, Result};

use crate::volume_files::VolumeFiles;

/// Where an archive is written to: a file, or what the caller has open.
pub struct Output<'a> {
    name: String,
    target: Target<'a>,
}

enum Target<'a> {
    File(PathBuf),
    Writer(Box<dyn Write + 'a>),
}

/// An output that is open.
pub(super) struct OpenOutput<'a> {
    /// Its name in messages.
    pub name: String,
    pub writer: Box<dyn Write + 'a>,
    /// The file that `writer` writes, if it is one that the copy has opened.
    pub file: Option<Arc<File>>,
}

impl<'a> Output<'a> {
    /// Creates the file at `path`, or replaces its contents.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { name: path.display().to_string(), target: Target::File(path) }
    }

    /// Writes to `writer`, which messages call `name`, 1 MiB at a time, and flushes it in the end.
    pub fn writer(writer: impl Write + 'a, name: impl Into<String>) -> Self {
        Self { name: name.into(), target: Target::Writer(Box::new(writer)) }
    }

    /// Opens it, unless it is one of the files `kept`.
    pub(super) fn open(self, kept: &VolumeFiles) -> Result<OpenOutput<'a>> {
        let Self { name, target } = self;
        Ok(match target {
            Target::File(path) => {
                let file = Arc::new(create(&path, kept).with_context(|| name.clone())?);
                OpenOutput { name, writer: Box::new(Arc::clone(&file)), file: Some(file) }
            }
            Target::Writer(writer) => OpenOutput { name, writer, file: None },
        })
    }
}

/// Creates the file of an archive, or empties it unless it is one of `kept`.
fn create(path: &Path, kept: &VolumeFiles) -> Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let metadata = file.metadata()?;
    kept.refuse(metadata.dev(), metadata.ino())?;
    if metadata.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}
