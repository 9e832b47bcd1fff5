//! The namespace against a model, debugfs and the kernel.

mod aliases;
mod basics;
mod casefold;
mod collisions;
mod concurrent;
mod encrypt;
mod hostile;
mod huge_dir;
mod large;
mod large_dir;
mod model;
mod paths;
mod rename;

use parext4::{Error, InodeRef, NewInode, Volume};
use testkit::Image;

/// A kind of volume: its name, options for mke2fs, and its directory hash if it is not the default.
type Kind = (&'static str, &'static [&'static str], Option<&'static str>);

/// Kinds of volumes that differ in the format of directories.
const KINDS: &[Kind] = &[
    ("4k", &["-b", "4096"], None),
    ("2k", &["-b", "2048"], None),
    ("1k", &["-b", "1024"], None),
    ("1k, no checksums", &["-b", "1024", "-O", "^metadata_csum"], None),
    ("1k, linear, no types", &["-b", "1024", "-O", "^dir_index,^filetype"], None),
    ("4k, 32 bits, no types", &["-b", "4096", "-O", "^64bit,^metadata_csum,uninit_bg,^filetype"], None),
    ("1k, orphan file", &["-b", "1024", "-O", "orphan_file"], None),
    ("1k, no journal", &["-b", "1024", "-O", "^has_journal"], None),
    ("1k, tea", &["-b", "1024"], Some("hash_alg=tea")),
    ("1k, legacy", &["-b", "1024"], Some("hash_alg=legacy")),
    ("1k, no dir_nlink", &["-b", "1024", "-O", "^dir_nlink"], None),
];

/// Makes a volume of a kind, if the tools are installed.
fn make(mib: u64, kind: &Kind) -> Option<Image> {
    let image = Image::mke2fs(mib, kind.1)?;
    kind.2.is_none_or(|hash| image.tune2fs(&["-E", hash])).then_some(image)
}

/// Runs `test` on a volume of each kind, then checks that it is sound.
fn on_each_kind(mib: u64, test: impl Fn(&Volume)) {
    for kind in KINDS {
        let Some(image) = make(mib, kind) else { return };
        eprintln!("{}", kind.0);
        let volume = image.open();
        test(&volume);
        volume.close().unwrap();
        image.fsck();
    }
}

/// Returns the names in a directory, in their order on disk.
fn names(dir: &InodeRef) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut after = 0;
    loop {
        let batch = dir.read_dir_after(after).unwrap();
        let Some(last) = batch.last() else { break };
        after = last.cookie();
        names.extend(
            batch.iter().map(|item| item.name().to_vec()).filter(|name| name != b"." && name != b".."),
        );
    }
    names.sort();
    names
}

fn new() -> NewInode {
    NewInode::new()
}

/// Asserts that an operation fails with an error of this variant.
macro_rules! assert_fails {
    ($operation:expr, $variant:ident) => {{
        let result = $operation.map(drop);
        assert!(matches!(result, Err(Error::$variant { .. })), "{:?}", result);
    }};
}
pub(crate) use assert_fails;
