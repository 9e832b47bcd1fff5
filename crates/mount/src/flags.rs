//! The ioctls of chattr and lsattr. Flags come in two forms, whichever the program uses: ext4's own, and those of
//! XFS (`struct fsxattr`).
//!
//! The kernel carries out `FS_IOC_SETFLAGS` and `FS_IOC_FSSETXATTR` itself, since Linux 5.13: it checks the caller and
//! then sends the command to the server. Every other command reaches the server from any process that has opened the
//! file, with any argument. So each command that changes something checks the caller here, also the two that the kernel
//! has checked. The 32-bit forms of the two commands for flags are not answered: the kernel translates them for 32-bit programs.

use fuser::INodeNo;
use parext4::{InodeFlags, Node};

use crate::caller::{CAP_LINUX_IMMUTABLE, Caller};
use crate::failure::{Failure, Outcome};
use crate::server::Server;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC32_GETVERSION: u32 = 0x8004_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

/// Bytes of `struct fsxattr`: its flags, and fields that ext4 has no use for but the project.
const FSXATTR: usize = 28;

/// `FS_XFLAG_*` and what they mean.
const XFLAGS: [(u32, InodeFlags); 5] = [
    (0x08, InodeFlags::IMMUTABLE),
    (0x10, InodeFlags::APPEND),
    (0x20, InodeFlags::SYNC),
    (0x40, InodeFlags::NOATIME),
    (0x80, InodeFlags::NODUMP),
];

/// Whether an ioctl changes flags: what was written before must be in the volume by then.
pub(crate) fn sets_flags(command: u32) -> bool {
    matches!(command, FS_IOC_SETFLAGS | FS_IOC_FSSETXATTR)
}

impl Server {
    pub fn ioctl(&self, ino: INodeNo, command: u32, argument: &[u8], caller: Caller) -> Outcome<Vec<u8>> {
        let node = self.node(ino)?;
        match command {
            FS_IOC_GETFLAGS => Ok(node.flags().bits().to_ne_bytes().to_vec()),
            FS_IOC_GETVERSION | FS_IOC32_GETVERSION => Ok(node.generation().to_ne_bytes().to_vec()),
            FS_IOC_SETFLAGS => {
                let flags = argument.first_chunk().ok_or(Failure::INVALID)?;
                self.set_flags(ino, &node, InodeFlags::from_bits_retain(u32::from_ne_bytes(*flags)), caller)
            }
            FS_IOC_FSGETXATTR => {
                let mut answer = xflags(node.flags()).to_ne_bytes().to_vec();
                answer.resize(FSXATTR, 0);
                Ok(answer)
            }
            FS_IOC_FSSETXATTR => self.set_flags(ino, &node, from_fsxattr(node.flags(), argument)?, caller),
            _ => self.volume_ioctl(command, argument, caller),
        }
    }

    /// Fails unless the caller may change the flags of an inode, and `flags` among them.
    fn check_flags(&self, node: &Node, flags: InodeFlags, caller: Caller) -> Outcome<()> {
        let owns = caller.is_root() || self.acts_as_owner(node, caller);
        let fixes = (node.flags() ^ flags).intersects(InodeFlags::APPEND | InodeFlags::IMMUTABLE);
        if !owns || fixes && !caller.is_root() && !caller.has(CAP_LINUX_IMMUTABLE) {
            return Err(Failure::NOT_PERMITTED);
        }
        Ok(())
    }

    fn set_flags(&self, ino: INodeNo, node: &Node, flags: InodeFlags, caller: Caller) -> Outcome<Vec<u8>> {
        self.check_flags(node, flags, caller)?;
        if flags.intersects(InodeFlags::APPEND | InodeFlags::IMMUTABLE)
            && self.pages(node).is_some_and(|pages| pages.may_be_longer())
        {
            // The kernel's own date comes later, and is refused then.
            node.touch_modified()?;
        }
        node.set_flags(flags)?;
        // The time of change, which the kernel does not expect.
        self.forget_attributes(ino);
        Ok(Vec::new())
    }
}

fn xflags(flags: InodeFlags) -> u32 {
    XFLAGS.iter().filter(|(_, flag)| flags.contains(*flag)).map(|(xflag, _)| xflag).sum()
}

/// The flags `old` with those that `struct fsxattr` has as it says. Its other fields cannot be set.
fn from_fsxattr(old: InodeFlags, argument: &[u8]) -> Outcome<InodeFlags> {
    let (new, rest) = argument.split_first_chunk().ok_or(Failure::INVALID)?;
    let new = u32::from_ne_bytes(*new);
    let known: u32 = XFLAGS.iter().map(|(xflag, _)| xflag).sum();
    if new & !known != 0 || rest.iter().any(|&byte| byte != 0) {
        return Err(Failure::NOT_SUPPORTED);
    }
    let mut flags = old;
    XFLAGS.iter().for_each(|(xflag, flag)| flags.set(*flag, new & xflag != 0));
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_two_names() {
        assert_eq!(xflags(InodeFlags::APPEND | InodeFlags::NODUMP | InodeFlags::EXTENTS), 0x90);
        assert_eq!(xflags(InodeFlags::empty()), 0);
        let mut argument = [0; FSXATTR];
        argument[0] = 0x90;
        let old = InodeFlags::EXTENTS | InodeFlags::IMMUTABLE;
        let new = InodeFlags::EXTENTS | InodeFlags::APPEND | InodeFlags::NODUMP;
        assert_eq!(from_fsxattr(old, &argument).unwrap(), new);
        argument[12] = 1;
        assert!(from_fsxattr(old, &argument).is_err(), "a project");
    }
}
