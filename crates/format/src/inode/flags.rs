//! `i_flags`.

bitflags::bitflags! {
    /// `i_flags`, with the kernel's names; bits without a name are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// Secure deletion; not implemented by the kernel.
        const SECRM = 0x1;
        /// Keep for undeletion; not implemented by the kernel.
        const UNRM = 0x2;
        /// Compressed; not implemented by the kernel.
        const COMPR = 0x4;
        /// Writes are synchronous.
        const SYNC = 0x8;
        /// Cannot be changed.
        const IMMUTABLE = 0x10;
        /// Can only be appended to.
        const APPEND = 0x20;
        /// `dump` skips it.
        const NODUMP = 0x40;
        /// `atime` is not updated.
        const NOATIME = 0x80;
        /// Compressed and dirty; not implemented by the kernel.
        const DIRTY = 0x100;
        /// Has compressed clusters; not implemented by the kernel.
        const COMPRBLK = 0x200;
        /// Do not compress; not implemented by the kernel.
        const NOCOMPR = 0x400;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// A directory with an htree.
        const INDEX = 0x1000;
        /// AFS magic directory.
        const IMAGIC = 0x2000;
        /// Data goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// The tail is not merged; not used by ext4.
        const NOTAIL = 0x8000;
        /// Directory changes are synchronous.
        const DIRSYNC = 0x10000;
        /// The top of a directory hierarchy, for the allocator.
        const TOPDIR = 0x20000;
        /// `i_blocks` counts file-system blocks; [`super::Inode::encode`] sets and clears this flag.
        const HUGE_FILE = 0x40000;
        /// Mapped by extents.
        const EXTENTS = 0x80000;
        /// Protected by fs-verity.
        const VERITY = 0x10_0000;
        /// Stores a large attribute value.
        const EA_INODE = 0x20_0000;
        /// Accessed directly (DAX).
        const DAX = 0x200_0000;
        /// The data is in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New files inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Names are compared without case.
        const CASEFOLD = 0x4000_0000;
    }
}
