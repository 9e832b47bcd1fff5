//! `i_flags`.

bitflags::bitflags! {
    /// `i_flags`, with the kernel's names; bits without a name are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// The blocks are to be overwritten on deletion; not implemented by the kernel.
        const SECRM = 0x1;
        /// The file is to be kept for undeletion; not implemented by the kernel.
        const UNRM = 0x2;
        /// The file is compressed; not implemented by the kernel.
        const COMPR = 0x4;
        /// Writes are synchronous.
        const SYNC = 0x8;
        /// The file cannot be changed.
        const IMMUTABLE = 0x10;
        /// The file can only be appended to.
        const APPEND = 0x20;
        /// `dump` skips the file.
        const NODUMP = 0x40;
        /// `atime` is not updated.
        const NOATIME = 0x80;
        /// The file is compressed and dirty; not implemented by the kernel.
        const DIRTY = 0x100;
        /// The file has compressed clusters; not implemented by the kernel.
        const COMPRBLK = 0x200;
        /// The file is not to be compressed; not implemented by the kernel.
        const NOCOMPR = 0x400;
        /// The inode is encrypted.
        const ENCRYPT = 0x800;
        /// The directory has a hash tree.
        const INDEX = 0x1000;
        /// The directory is an AFS magic directory.
        const IMAGIC = 0x2000;
        /// The data of the file is journalled.
        const JOURNAL_DATA = 0x4000;
        /// The tail of the file is not merged; not used by ext4.
        const NOTAIL = 0x8000;
        /// Changes of the directory are synchronous.
        const DIRSYNC = 0x10000;
        /// The directory is the top of a hierarchy, for the allocator.
        const TOPDIR = 0x20000;
        /// `i_blocks` counts file-system blocks; [`super::Inode::encode`] sets and clears this
        /// flag.
        const HUGE_FILE = 0x40000;
        /// The file is mapped by extents.
        const EXTENTS = 0x80000;
        /// fs-verity protects the file.
        const VERITY = 0x10_0000;
        /// The inode stores a large attribute value.
        const EA_INODE = 0x20_0000;
        /// The file is accessed directly (DAX).
        const DAX = 0x200_0000;
        /// The contents are in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New files inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Names are compared without case.
        const CASEFOLD = 0x4000_0000;
    }
}
