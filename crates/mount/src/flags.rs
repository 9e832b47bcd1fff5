//! The ioctls of chattr, lsattr and fstrim. Of flags, the kernel asks in two languages, ext4's own flags and those that XFS began with
//! (`struct fsxattr`), whichever the program uses.

use fuser::INodeNo;
use parext4::{InodeFlags, Node};

use crate::failure::{Failure, Outcome};
use crate::server::{Caller, Server};

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC32_GETFLAGS: u32 = 0x8004_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC32_SETFLAGS: u32 = 0x4004_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC32_GETVERSION: u32 = 0x8004_7601;
const FITRIM: u32 = 0xc018_5879;
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

impl Server {
    pub fn ioctl(&self, ino: INodeNo, command: u32, argument: &[u8], caller: Caller) -> Outcome<Vec<u8>> {
        let node = self.node(ino)?;
        match command {
            FS_IOC_GETFLAGS | FS_IOC32_GETFLAGS => Ok(node.flags().bits().to_ne_bytes().to_vec()),
            FS_IOC_GETVERSION | FS_IOC32_GETVERSION => Ok(node.generation().to_ne_bytes().to_vec()),
            FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS => {
                let flags = argument.first_chunk().ok_or(Failure::INVALID)?;
                self.set_flags(&node, InodeFlags::from_bits_retain(u32::from_ne_bytes(*flags)))
            }
            FS_IOC_FSGETXATTR => {
                let mut answer = xflags(node.flags()).to_ne_bytes().to_vec();
                answer.resize(FSXATTR, 0);
                Ok(answer)
            }
            FS_IOC_FSSETXATTR => self.set_flags(&node, from_fsxattr(node.flags(), argument)?),
            FITRIM => self.trim(argument, caller),
            _ => Err(Failure::NO_IOCTL),
        }
    }

    /// Gives free space in the range of a `struct fstrim_range` back to the device, and says in it how much it was.
    /// For root, and for whoever runs the server: it is his image.
    fn trim(&self, argument: &[u8], caller: Caller) -> Outcome<Vec<u8>> {
        if !caller.is_root() && caller.uid != rustix::process::geteuid().as_raw() {
            return Err(Failure::NOT_PERMITTED);
        }
        let (fields, _) = argument.as_chunks();
        let &[start, len, least] = fields else { return Err(Failure::INVALID) };
        let [start, len, least] = [start, len, least].map(u64::from_ne_bytes);
        // What was removed a moment ago counts, too.
        self.volume.sync()?;
        let trimmed = self.volume.trim(start..start.saturating_add(len), least)?;
        Ok([start, trimmed, least].map(u64::to_ne_bytes).concat())
    }

    fn set_flags(&self, node: &Node, flags: InodeFlags) -> Outcome<Vec<u8>> {
        // What was written before may still be written back then.
        self.have_written_back(node);
        if flags.intersects(InodeFlags::APPEND | InodeFlags::IMMUTABLE) && self.handles.has_writer(node) {
            // The kernel's own date comes later, and is refused then.
            node.touch_modified()?;
        }
        node.set_flags(flags)?;
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
