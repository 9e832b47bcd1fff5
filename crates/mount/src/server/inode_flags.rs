//! The ioctls of single inodes: for fs-verity, and for chattr(1) and lsattr(1). A program may use
//! either of two forms of the flags: ext4's own, or that of XFS (`struct fsxattr`).
//!
//! Since Linux 5.13 the kernel checks the caller of `FS_IOC_SETFLAGS` and `FS_IOC_FSSETXATTR`
//! before it sends the command. Every other command reaches the server from any process that has
//! opened the file, with any argument. So each command that changes the volume checks the caller
//! here, including those two. The 32-bit forms of the commands for flags never reach the server:
//! the kernel translates them for 32-bit programs.

use fuser::INodeNo;
use parext4::server::ServerInode;
use parext4::{FileType, InodeFlags, InodeRef};

use super::Server;
use crate::protocol::{CAP_LINUX_IMMUTABLE, Caller, Failure, Outcome};

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC32_GETVERSION: u32 = 0x8004_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FS_IOC_ENABLE_VERITY: u32 = 0x4080_6685;
const FS_IOC_MEASURE_VERITY: u32 = 0xc004_6686;
/// A command whose argument has the address of a buffer, which the kernel does not pass on.
const FS_IOC_READ_VERITY_METADATA: u32 = 0xc028_6687;

/// Size of `struct fsxattr`, in bytes: the flags, and fields of which ext4 uses only the project.
const FSXATTR: usize = 28;
/// Offset of the project in `struct fsxattr`, in bytes.
const PROJECT: usize = 12;

/// The `FS_XFLAG_*` flags and the inode flags that they correspond to.
const XFLAGS: [(u32, InodeFlags); 6] = [
    (0x08, InodeFlags::IMMUTABLE),
    (0x10, InodeFlags::APPEND),
    (0x20, InodeFlags::SYNC),
    (0x40, InodeFlags::NOATIME),
    (0x80, InodeFlags::NODUMP),
    (0x200, InodeFlags::PROJINHERIT),
];

/// Returns true if an ioctl changes flags, before which earlier writes must reach the volume.
pub(crate) fn sets_flags(command: u32) -> bool {
    matches!(command, FS_IOC_SETFLAGS | FS_IOC_FSSETXATTR)
}

impl Server {
    /// Executes an ioctl.
    pub fn ioctl(&self, ino: INodeNo, command: u32, argument: &[u8], caller: Caller) -> Outcome<Vec<u8>> {
        let node = self.inode_ref(ino)?;
        match command {
            FS_IOC_GETFLAGS => Ok(node.flags().bits().to_ne_bytes().to_vec()),
            FS_IOC_GETVERSION | FS_IOC32_GETVERSION => Ok(node.generation().to_ne_bytes().to_vec()),
            FS_IOC_SETFLAGS => {
                let flags = argument.first_chunk().ok_or(Failure::INVALID)?;
                let flags = InodeFlags::from_bits_retain(u32::from_ne_bytes(*flags));
                self.check_may_set_flags(&node, flags, caller)?;
                self.set_flags(ino, &node, flags)?;
                self.after_change(&node)?;
                Ok(Vec::new())
            }
            FS_IOC_FSGETXATTR => {
                let mut reply = xflags(node.flags()).to_ne_bytes().to_vec();
                reply.resize(FSXATTR, 0);
                reply[PROJECT..PROJECT + 4].copy_from_slice(&node.project().to_ne_bytes());
                Ok(reply)
            }
            FS_IOC_FSSETXATTR => {
                let (flags, project) = from_fsxattr(node.flags(), argument)?;
                self.check_may_set_flags(&node, flags, caller)?;
                self.set_flags_and_project(ino, flags, &self.inode_ref_for(ino, caller)?, project)?;
                self.after_change(&node)?;
                Ok(Vec::new())
            }
            FS_IOC_MEASURE_VERITY if self.has_verity => measure_verity(&node, argument),
            FS_IOC_MEASURE_VERITY | FS_IOC_ENABLE_VERITY | FS_IOC_READ_VERITY_METADATA => {
                Err(Failure::NOT_SUPPORTED)
            }
            _ => self.volume_ioctl(command, argument, caller),
        }
    }

    /// Fails unless the caller may set the flags of an inode to `flags`.
    fn check_may_set_flags(&self, node: &InodeRef, flags: InodeFlags, caller: Caller) -> Outcome<()> {
        let is_owner = caller.is_root() || self.acts_as_owner(node, caller);
        let protects = (node.flags() ^ flags).intersects(InodeFlags::APPEND | InodeFlags::IMMUTABLE);
        if !is_owner || protects && !caller.is_root() && !caller.has(CAP_LINUX_IMMUTABLE) {
            return Err(Failure::NOT_PERMITTED);
        }
        Ok(())
    }

    /// Sets the flags and the project, or neither if one of them is not permitted. The exception is
    /// an inode that ceases to be immutable: its flags are set first, and stay set if the project
    /// is refused, as in the kernel. As in the kernel, an owner may choose the project. `node` has
    /// the credentials of the caller.
    fn set_flags_and_project(
        &self,
        ino: INodeNo,
        flags: InodeFlags,
        node: &InodeRef,
        project: u32,
    ) -> Outcome<()> {
        if flags.contains(InodeFlags::PROJINHERIT) && node.file_type() != FileType::Directory {
            return Err(Failure::NOT_SUPPORTED);
        }
        let clears_immutable = node.flags().difference(flags).contains(InodeFlags::IMMUTABLE);
        let set_project = || -> Outcome<()> {
            node.set_project(project)?;
            self.invalidate_attributes(ino);
            Ok(())
        };
        if clears_immutable {
            self.set_flags(ino, node, flags)?;
            return set_project();
        }
        set_project()?;
        self.set_flags(ino, node, flags)
    }

    fn set_flags(&self, ino: INodeNo, node: &InodeRef, flags: InodeFlags) -> Outcome<()> {
        let fixed = InodeFlags::APPEND | InodeFlags::IMMUTABLE;
        if flags.intersects(fixed)
            && let Some(pages) = self.kernel_pages(node).filter(|pages| pages.has_writer())
        {
            // This happens before the flags forbid it: write-back clears set-ID bits, and the
            // kernel sends its own time after the flags.
            if !node.flags().intersects(fixed) {
                self.drop_hidden_set_ids(node)?;
            }
            if pages.may_be_longer() {
                node.touch_modified()?;
            }
        }
        node.set_flags(flags)?;
        if !flags.contains(InodeFlags::APPEND) {
            self.kernel_pages(node).inspect(|pages| pages.forget_appenders());
        }
        // The kernel does not expect the new time of change.
        self.invalidate_attributes(ino);
        Ok(())
    }
}

/// Returns a `struct fsverity_digest` with the digest of a file that fs-verity protects. `argument`
/// is the structure of the caller, with the room for the digest. Linux passes on all of it since
/// 6.10, and only its two numbers before.
fn measure_verity(node: &InodeRef, argument: &[u8]) -> Outcome<Vec<u8>> {
    let verity = node.verity()?.ok_or(Failure::NO_ATTRIBUTE)?;
    let Some((&[_, _, low, high], room)) = argument.split_first_chunk() else { return Err(Failure::INVALID) };
    let stated = usize::from(u16::from_ne_bytes([low, high]));
    if stated.min(room.len()) < verity.digest.len() {
        return Err(Failure::OVERFLOW);
    }
    let len = u16::try_from(verity.digest.len()).map_err(|_| Failure::OVERFLOW)?;
    let header = [u16::from(verity.algorithm.number()), len].map(u16::to_ne_bytes);
    Ok([header.as_flattened(), &verity.digest].concat())
}

fn xflags(flags: InodeFlags) -> u32 {
    XFLAGS.iter().filter(|(_, flag)| flags.contains(*flag)).map(|(xflag, _)| xflag).sum()
}

/// Returns `old` with the flags that `struct fsxattr` can express replaced by the flags in
/// `argument`, and the project.
///
/// # Errors
/// If another field of the structure is set.
fn from_fsxattr(old: InodeFlags, argument: &[u8]) -> Outcome<(InodeFlags, u32)> {
    let (words, _) = argument.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    let [new, extent_size, extents, project, rest @ ..] = &words[..] else { return Err(Failure::INVALID) };
    let known: u32 = XFLAGS.iter().map(|(xflag, _)| xflag).sum();
    if new & !known != 0 || extent_size | extents != 0 || rest.iter().any(|&word| word != 0) {
        return Err(Failure::NOT_SUPPORTED);
    }
    let mut flags = old;
    XFLAGS.iter().for_each(|(xflag, flag)| flags.set(*flag, new & xflag != 0));
    Ok((flags, *project))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_flags_agree() {
        assert_eq!(xflags(InodeFlags::APPEND | InodeFlags::NODUMP | InodeFlags::EXTENTS), 0x90);
        assert_eq!(xflags(InodeFlags::empty()), 0);
        let mut argument = [0; FSXATTR];
        argument[0] = 0x90;
        let old = InodeFlags::EXTENTS | InodeFlags::IMMUTABLE;
        let new = InodeFlags::EXTENTS | InodeFlags::APPEND | InodeFlags::NODUMP;
        assert_eq!(from_fsxattr(old, &argument).unwrap(), (new, 0));
        argument[PROJECT..PROJECT + 4].copy_from_slice(&70_000_u32.to_ne_bytes());
        assert_eq!(from_fsxattr(old, &argument).unwrap(), (new, 70_000));
        argument[16] = 1;
        assert!(from_fsxattr(old, &argument).is_err(), "a field that ext4 does not have is set");
    }
}
