//! Small sound volumes with structures of every class, from which damaged ones are made.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use image_kinds::Kind;
use parext4::{Device, InodeFlags, MemDevice, NewInode, OpenOptions, Result, Volume, XattrMode};

use crate::access_list::full_access_list;
use crate::verity::{self, Protection};
use crate::volume::untimed;
use crate::{Image, encrypted, kinds};

/// Names of a directory that outgrows the root of its index.
const MANY: usize = 300;
/// The directory of the changes before the volume is closed.
const FIRST: &str = "/ours";
/// Names of an encrypted directory.
const ENCRYPTED: u32 = 100;

/// Makes volumes of a kind with files: one that was closed, and some that a crash left with a log.
/// `None` as for [`kinds::in_memory`].
///
/// # Panics
/// If the volume cannot be changed.
pub fn seeds(kind: &Kind) -> Option<Vec<MemDevice>> {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    populate(&tree).unwrap();
    let image = kinds::accepted(kind, Image::of_kind(kind, Some(&tree))?)?;
    image.convert(kind);
    if kind.mke2fs.contains("verity") {
        protect(&image);
    }
    if kind.mke2fs.contains("encrypt") {
        image.with_kernel(|root| {
            let _ = encrypted::make(root, ENCRYPTED);
        });
    }
    let closed = Arc::new(image.load());
    let open = |device: &Arc<MemDevice>| {
        let device: Arc<dyn Device> = Arc::clone(device) as _;
        Volume::open_device(device, &untimed()).unwrap()
    };
    let volume = open(&closed);
    change(&volume, FIRST).unwrap();
    volume.close().unwrap();
    let mut seeds = vec![closed.fork()];
    if kind.has_journal() {
        let crashed = Arc::new(closed.fork());
        let volume = open(&crashed);
        change(&volume, "/crashed").unwrap();
        let _ = volume.remove_dir_all(FIRST);
        volume.sync().unwrap();
        volume.abort().unwrap();
        drop(volume);
        seeds.push(crashed.fork());
    }
    if kind.mke2fs.contains("fast_commit") {
        seeds.extend(image.with_kernel_options("", |root| {
            fast_commits(root).unwrap();
            image.load()
        }));
    }
    Some(seeds)
}

/// Makes a file that fs-verity protects, with a tree of two levels.
fn protect(image: &Image) {
    let data = vec![7; 600_000];
    let volume = image.open();
    let block_size = volume.info().block_size as usize;
    verity::write(&volume, "/protected", &data, &Protection::DEFAULT.of(&data).stored(block_size));
    volume.close().unwrap();
    verity::set_size(&image.path(), "/protected", data.len() as u64, true);
}

/// Makes a tree without files that only root may make.
fn populate(tree: &Path) -> std::io::Result<()> {
    fs::create_dir_all(tree.join("dir/below/it"))?;
    fs::create_dir(tree.join("many"))?;
    for n in 0..MANY {
        File::create(tree.join(format!("many/{n:0>30}")))?;
    }
    fs::write(tree.join("small"), "11 bytes")?;
    fs::write(tree.join("large"), vec![3; 700_001])?;
    fs::hard_link(tree.join("large"), tree.join("link"))?;
    symlink("target", tree.join("short"))?;
    symlink("x".repeat(200), tree.join("long"))
}

/// Makes a file of many extents, attributes in and outside of inodes, and names.
fn change(volume: &Volume, at: &str) -> Result<()> {
    let dir = volume.create_dir(at, 0o755)?;
    let file = volume.open_direct(format!("{at}/sparse"), &OpenOptions::read_write().create_new(true))?;
    for n in 0..300 {
        file.write_all_at(&[5; 4096], n * 8192)?;
    }
    file.inode_ref().set_xattr(b"user.in", b"the inode", XattrMode::Any)?;
    file.inode_ref().set_xattr(b"user.out", &[7; 700], XattrMode::Any)?;
    file.inode_ref().set_xattr(b"system.posix_acl_access", &full_access_list(1000), XattrMode::Any)?;
    dir.set_xattr(b"system.posix_acl_default", &full_access_list(1000), XattrMode::Any)?;
    // Only some kinds have room for it.
    let _ = file.inode_ref().set_xattr(b"user.large", &[7; 9000], XattrMode::Any);
    for n in 0..40 {
        let name = format!("{n:0>50}");
        match n % 3 {
            0 => volume.write(format!("{at}/{name}"), vec![1; n * 100])?,
            1 => drop(dir.mkdir(name.as_bytes(), &NewInode::new())?),
            _ => drop(dir.symlink(name.as_bytes(), &vec![b't'; 5 * n], &NewInode::new())?),
        }
    }
    if at == FIRST {
        // Only some kinds have such directories.
        let _ = folded_names(volume);
    }
    volume.sync()
}

/// Makes a directory that ignores case, with names that differ from their folded form.
fn folded_names(volume: &Volume) -> Result<()> {
    let folded = volume.create_dir("/folded", 0o755)?;
    folded.set_flags(folded.flags() | InodeFlags::CASEFOLD)?;
    (0..100).try_for_each(|n| {
        folded.create(format!("Ünï Straße {n:0>30}").as_bytes(), &NewInode::new()).map(drop)
    })
}

/// Makes changes that the kernel logs as fast commits.
fn fast_commits(root: &Path) -> std::io::Result<()> {
    fs::create_dir(root.join("kernel"))?;
    File::open(root.join("kernel"))?.sync_all()?;
    for n in 0..6 {
        let path = root.join(format!("kernel/{n}"));
        fs::write(&path, vec![n; 3000 * usize::from(n) + 1])?;
        File::open(&path)?.sync_all()?;
        match n % 3 {
            0 => fs::rename(&path, path.with_extension("moved"))?,
            1 => fs::hard_link(&path, path.with_extension("linked"))?,
            _ => fs::remove_file(&path)?,
        }
    }
    let file = File::options().write(true).open(root.join("large"))?;
    file.set_len(5)?;
    file.sync_all()
}
