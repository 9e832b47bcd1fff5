//! Random changes that move usage between users, groups and projects.

use parext4::server::ServerInode as _;
use parext4::{
    Error, FileSize, FileType, InodeFlags, InodeRef, NewInode, OpenOptions, RenameMode, Result,
    SetAttributes, Volume, XattrMode,
};
use testkit::rng::Rng;

/// Owners and projects in use. Most get their entries in the course of the workload.
const IDS: [u32; 8] = [0, 1, 1000, 1001, 70_000, 5, 1 << 24, 4_000_000_000];

fn id(rng: &mut Rng) -> u32 {
    IDS[usize::try_from(rng.below(IDS.len() as u64)).unwrap()]
}

fn name(rng: &mut Rng) -> String {
    format!("/d{}/f{}", rng.below(2), rng.below(6))
}

/// Makes the directories of the workload; new inodes of the second one inherit its project.
pub(super) fn begin(volume: &Volume) {
    for dir in ["/d0", "/d1"] {
        volume.create_dir(dir, 0o777).unwrap();
    }
    let node = volume.resolve("/d1").unwrap();
    node.set_project(77).unwrap();
    node.set_flags(node.flags() | InodeFlags::PROJINHERIT).unwrap();
}

/// Makes one random change. An error that a user may meet is fine.
pub(super) fn change(volume: &Volume, rng: &mut Rng) {
    match try_change(volume, rng) {
        Ok(())
        | Err(
            Error::NotFound(_)
            | Error::Exists(_)
            | Error::NoSpace
            | Error::NoInodes
            | Error::IsDirectory(_)
            | Error::NotDirectory(_)
            | Error::NotEmpty(_)
            | Error::NoAttribute(_)
            | Error::OtherProject(_)
            | Error::QuotaExceeded(_)
            | Error::Invalid(_)
            | Error::Unsupported(_)
            | Error::FileTooLarge
            | Error::NotPermitted(_),
        ) => {}
        Err(error) => panic!("{error}"),
    }
}

fn try_change(volume: &Volume, rng: &mut Rng) -> Result<()> {
    let path = name(rng);
    match rng.below(20) {
        0..=3 => create(volume, &path, rng),
        4 | 5 => volume.remove_file(&path),
        6 => volume.remove_dir(&path),
        7 => volume.resolve_no_follow(&path)?.set_attributes(&SetAttributes::new().uid(id(rng)).gid(id(rng))),
        8 => volume.resolve_no_follow(&path)?.set_project(id(rng)),
        9 => rename(volume, &path, &name(rng), rng),
        10 => volume.hard_link(&path, name(rng)),
        11 | 12 => xattr(&volume.resolve_no_follow(&path)?, rng),
        13 => volume.sync(),
        _ => data(volume, &path, rng),
    }
}

fn create(volume: &Volume, path: &str, rng: &mut Rng) -> Result<()> {
    let (dir, name) = path.rsplit_once('/').unwrap();
    let (dir, name) = (volume.resolve(dir)?, name.as_bytes());
    let new = NewInode::new().permissions(0o666).uid(id(rng)).gid(id(rng));
    match rng.below(6) {
        0 => dir.mkdir(name, &new).map(drop),
        1 => dir
            .symlink(name, "x/".repeat(usize::try_from(1 + rng.below(250)).unwrap()).as_bytes(), &new)
            .map(drop),
        2 => dir.mknod(name, parext4::Special::Fifo, &new).map(drop),
        _ => dir.create(name, &new).map(drop),
    }
}

fn rename(volume: &Volume, from: &str, to: &str, rng: &mut Rng) -> Result<()> {
    let ((from_dir, from), (to_dir, to)) = (from.rsplit_once('/').unwrap(), to.rsplit_once('/').unwrap());
    let (from_dir, to_dir) = (volume.resolve(from_dir)?, volume.resolve(to_dir)?);
    let mode = if rng.chance(30) { RenameMode::Exchange } else { RenameMode::Replace };
    if rng.chance(10) {
        let owner = NewInode::new().uid(id(rng));
        return from_dir.rename_with_whiteout(
            from.as_bytes(),
            &to_dir,
            to.as_bytes(),
            RenameMode::Replace,
            &owner,
        );
    }
    from_dir.rename(from.as_bytes(), &to_dir, to.as_bytes(), mode)
}

fn xattr(node: &InodeRef, rng: &mut Rng) -> Result<()> {
    let name = format!("trusted.a{}", rng.below(3));
    // With blocks of a value in an inode, e2fsck takes the target of a short symbolic link for
    // block numbers.
    let lens = if node.file_type() == FileType::Symlink { 2 } else { 4 };
    let len = [20, 300, 2000, 9000][usize::try_from(rng.below(lens)).unwrap()];
    let byte = u8::try_from(rng.below(3)).unwrap();
    match rng.chance(30) {
        true => node.remove_xattr(name.as_bytes()),
        false => node.set_xattr(name.as_bytes(), &vec![byte; len], XattrMode::Any),
    }
}

fn data(volume: &Volume, path: &str, rng: &mut Rng) -> Result<()> {
    let (offset, len) = (rng.log_uniform(1 << 19), 1 + rng.log_uniform(1 << 16));
    let bytes = vec![7; usize::try_from(len).unwrap()];
    let aligned = |at: u64| at & !4095;
    if rng.chance(50) {
        let file = volume.open_file(path, &OpenOptions::read_write())?;
        return match rng.below(3) {
            0 => file.write_all_at(&bytes, offset).map(drop),
            1 => file.append(&bytes).map(drop),
            _ => file.set_len(offset),
        };
    }
    let file = volume.open_direct(path, &OpenOptions::read_write())?;
    match rng.below(8) {
        0 => file.allocate(offset..offset + len, FileSize::kept_if(rng.chance(50))),
        1 => file.punch_hole(offset..offset + len),
        2 => file.zero_range(offset..offset + len, FileSize::kept_if(rng.chance(50))),
        3 => file.collapse_range(aligned(offset)..aligned(offset) + 4096),
        4 => file.insert_range(aligned(offset)..aligned(offset) + 8192),
        5 => file.set_len(offset),
        _ => {
            let bytes = parext4::AlignedBuf::zeroed(usize::try_from(aligned(len) + 4096).unwrap());
            file.write_all_at(&bytes, aligned(offset)).map(drop)
        }
    }
}
