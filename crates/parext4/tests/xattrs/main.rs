//! Extended attributes, access control lists and flags, against a model, debugfs and the kernel.

mod acl;
mod basics;
mod crash;
mod faults;
mod flags;
mod full;
mod hostile;
mod kernel;
mod model;
mod shared;
mod values;
mod visit;

use parext4::{InodeRef, NewInode, Volume};
use testkit::Image;
use testkit::access_list::{access_list, full_access_list};

/// Kinds of volumes that differ in the place and the checks of attributes: options for mke2fs.
const KINDS: &[&[&str]] = &[
    &["-b", "1024", "-I", "128"],
    &["-b", "1024", "-I", "256"],
    &["-b", "1024", "-I", "128", "-O", "^metadata_csum,^64bit"],
    &["-b", "1024", "-I", "256", "-O", "^has_journal"],
    &["-b", "2048", "-I", "128"],
    &["-b", "2048", "-I", "256", "-O", "^metadata_csum"],
    &["-b", "4096", "-I", "128", "-O", "^metadata_csum,uninit_bg"],
    &["-b", "4096", "-I", "256"],
    &["-b", "4096", "-I", "512"],
];
/// Kinds of volumes on which large values have inodes of their own.
const VALUE_KINDS: [&[&str]; 2] = [
    &["-b", "1024", "-I", "256", "-O", "ea_inode"],
    &["-b", "4096", "-I", "128", "-O", "ea_inode,^metadata_csum"],
];

/// Runs `test` on a volume of each kind, then checks that it is sound.
fn on_each_kind(test: impl Fn(&Volume)) {
    for kind in KINDS {
        let Some(image) = Image::mke2fs(8, kind) else { return };
        eprintln!("{kind:?}");
        let volume = image.open();
        test(&volume);
        volume.close().unwrap();
        image.fsck();
    }
}

fn new() -> NewInode {
    NewInode::new()
}

/// Makes a file in the root directory.
fn file(volume: &Volume, name: &str) -> InodeRef {
    volume.root().unwrap().create(name.as_bytes(), &new()).unwrap()
}

/// Returns the names of a node's attributes, sorted.
fn names(node: &InodeRef) -> Vec<String> {
    let mut names: Vec<_> =
        node.list_xattr().unwrap().into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
    names.sort();
    names
}

/// The user that access control lists name.
const ACL_USER: u32 = 1000;

/// Returns an access control list of `(tag, permissions)`.
fn list(entries: &[(u16, u16)]) -> Vec<u8> {
    access_list(ACL_USER, entries)
}

/// A list that the permissions cannot express.
fn full_list() -> Vec<u8> {
    full_access_list(ACL_USER)
}

/// Asserts that an operation fails with an error of this variant.
macro_rules! assert_fails {
    ($operation:expr, $variant:ident) => {{
        let result = $operation.map(drop);
        assert!(matches!(result, Err(parext4::Error::$variant { .. })), "{:?}", result);
    }};
}
pub(crate) use assert_fails;
