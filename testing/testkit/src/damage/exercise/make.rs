//! Makes new files of all kinds, with everything that the volume's features permit.

use parext4::server::ServerInode;
use parext4::server::ServerVolume as _;
use parext4::{
    EmptiedLog, FileSize, InodeFlags, InodeRef, NewInode, OpenOptions, QuotaGraces, QuotaKind, QuotaLimits,
    RenameMode, Result, SetAttributes, Special, Volume, XattrMode,
};
use std::time::Duration;

use super::each;
use crate::access_list::full_access_list;

/// The directory of the new files.
pub(super) const NEW: &str = "/new";
/// The user in access lists and quotas.
pub(super) const USER: u32 = 70_000;
/// Names that fill the root of a hash tree of blocks of 1 KiB, three in a block.
const LONG_NAMES: usize = 400;

/// Makes inodes of all kinds, moves them, and changes the volume's own settings.
pub(super) fn make(volume: &Volume) -> Result<()> {
    let dir = volume.root()?.mkdir(b"new", &NewInode::new())?;
    each([
        &|| files(volume),
        &|| inodes(&dir),
        &|| moves(&dir),
        &|| long_names(&dir),
        &|| folded_names(&dir),
        &|| inherited(&dir),
        &|| settings(volume),
        &|| volume.sync(),
        &|| volume.empty_journal(EmptiedLog::Zeroed),
    ]);
    Ok(())
}

/// Makes files with many extents, unwritten ones and holes, and copies one.
fn files(volume: &Volume) -> Result<()> {
    volume.write("/new/file", vec![7; 300_000])?;
    let _ = volume.copy("/new/file", "/new/copy");
    let file = volume.open_direct("/new/direct", &OpenOptions::read_write().create_new(true))?;
    for n in 0..40 {
        file.write_all_at(&[n; 4096], u64::from(n) * 20_480)?;
    }
    each([
        &|| file.allocate(1 << 20..(1 << 20) + 300_000, FileSize::Extend),
        &|| file.punch_hole(8192..208192),
        &|| file.zero_range(400_000..450000, FileSize::Extend),
        &|| file.set_len(500_000),
    ]);
    Ok(())
}

/// Makes inodes of each type, with attributes of growing size.
fn inodes(dir: &InodeRef) -> Result<()> {
    let new = NewInode::new();
    let devices =
        [Special::CharDevice { major: 5, minor: 1 }, Special::BlockDevice { major: 300, minor: 70_000 }];
    for (name, device) in [b"char", b"disk"].into_iter().zip(devices) {
        let _ = dir.mknod(name, device, &new);
    }
    for n in 0..40 {
        let name = format!("{n:0>60}").into_bytes();
        match n % 4 {
            0 => drop(dir.mkdir(&name, &new)?),
            1 => drop(dir.symlink(&name, &vec![b't'; 20 * (n + 1)], &new)?),
            _ => {
                let file = dir.create(&name, &new)?;
                let _ = file.set_xattr(b"user.a", &vec![7; 30 * (n + 1)], XattrMode::Any);
            }
        }
    }
    Ok(())
}

/// Renames files and directories in each mode, within and across directories, and links.
fn moves(dir: &InodeRef) -> Result<()> {
    let new = NewInode::new();
    let other = dir.mkdir(b"other", &new)?;
    let large = other.mkdir(b"large", &new)?;
    for n in 0..60 {
        drop(large.create(format!("{n:0>40}").as_bytes(), &new)?);
    }
    for name in [b"one", b"two"] {
        drop(dir.create(name, &new)?);
        drop(other.create(name, &new)?);
    }
    let small = dir.mkdir(b"small", &new)?;
    drop(dir.mkdir(b"empty", &new)?);
    each([
        &|| other.link(b"linked", &dir.lookup(b"one")?),
        &|| dir.rename(b"one", &other, b"one", RenameMode::Replace),
        &|| dir.rename(b"two", &other, b"two", RenameMode::NoReplace),
        &|| dir.rename(b"two", dir, b"moved", RenameMode::NoReplace),
        &|| dir.rename(b"small", &other, b"large", RenameMode::Exchange),
        &|| dir.rename(b"moved", &other, b"large", RenameMode::Exchange),
        &|| other.rename(b"moved", dir, b"back", RenameMode::Replace),
        &|| dir.rename(b"small", &other, b"small", RenameMode::Replace),
        &|| dir.rename(b"empty", &other, b"small", RenameMode::Replace),
        &|| other.rename(b"small", dir, b"empty", RenameMode::Replace),
        &|| dir.rename(b"other", &small, b"below", RenameMode::Replace),
        &|| other.rename_with_whiteout(b"two", dir, b"white", RenameMode::Replace, &new),
        &|| dir.unlink(b"moved"),
    ]);
    Ok(())
}

/// Makes a directory whose hash tree has several levels on small blocks, and removes every other
/// name.
fn long_names(dir: &InodeRef) -> Result<()> {
    let deep = dir.mkdir(b"deep", &NewInode::new())?;
    let target = deep.create(b"target", &NewInode::new())?;
    let name = |n: usize| format!("{n:0>250}").into_bytes();
    for n in 0..LONG_NAMES {
        deep.link(&name(n), &target)?;
    }
    (0..LONG_NAMES).step_by(2).try_for_each(|n| deep.unlink(&name(n)))
}

/// Makes names in a directory that ignores case, and finds, renames and removes them in another
/// spelling.
fn folded_names(dir: &InodeRef) -> Result<()> {
    let folded = dir.mkdir(b"folded", &NewInode::new())?;
    folded.set_flags(folded.flags() | InodeFlags::CASEFOLD)?;
    for n in 0..60 {
        drop(folded.create(format!("Straße Ünï {n:0>40}").as_bytes(), &NewInode::new())?);
    }
    for n in 0..30 {
        let other_case = format!("STRASSE ÜNÏ {n:0>40}");
        drop(folded.lookup(other_case.as_bytes())?);
        match n % 3 {
            0 => folded.rename(
                other_case.as_bytes(),
                dir,
                format!("unfolded {n}").as_bytes(),
                RenameMode::Replace,
            )?,
            1 => folded.unlink(other_case.as_bytes())?,
            _ => folded.rename(other_case.as_bytes(), &folded, b"Next", RenameMode::Replace)?,
        }
    }
    let _ = folded.create(b"no \xff UTF-8", &NewInode::new());
    folded.lookup(b"absent").map(drop)
}

/// Makes files that inherit an access list and a project.
fn inherited(dir: &InodeRef) -> Result<()> {
    let parent = dir.mkdir(b"parent", &NewInode::new())?;
    each([
        &|| parent.set_xattr(b"system.posix_acl_default", &full_access_list(USER), XattrMode::Any),
        &|| parent.set_project(9),
        &|| parent.set_flags(parent.flags() | InodeFlags::PROJINHERIT | InodeFlags::SYNC),
        &|| parent.mkdir(b"dir", &NewInode::new()).map(drop),
    ]);
    let file = parent.create(b"file", &NewInode::new().uid(USER).permissions(0o6775))?;
    each([
        &|| file.set_attributes(&SetAttributes::new().permissions(0o6664)),
        &|| file.set_xattr(b"security.capability", &[2; 20], XattrMode::Any),
        &|| file.remove_capabilities(),
        &|| file.clear_set_ids(|mode| mode),
        &|| file.remove_xattr(b"system.posix_acl_access"),
        &|| dir.rename(b"file", &parent, b"moved", RenameMode::Replace),
    ]);
    Ok(())
}

/// Sets limits, the label and the last directory.
fn settings(volume: &Volume) -> Result<()> {
    let limits = QuotaLimits { space_hard: 1 << 20, space_soft: 1 << 19, inodes_hard: 1000, inodes_soft: 1 };
    let graces = QuotaGraces { space: Duration::from_secs(5), inodes: Duration::from_secs(5) };
    for kind in QuotaKind::ALL {
        for id in [0, 1, 255, 256, USER, u32::MAX - 1] {
            let _ = volume.set_quota_limits(kind, id, &limits);
        }
        let _ = volume.set_quota_limits(kind, USER, &QuotaLimits::default());
        let _ = volume.set_quota_graces(kind, graces);
    }
    volume.set_label(b"fuzzed")?;
    volume.set_last_mounted("/fuzzed".as_ref())
}
