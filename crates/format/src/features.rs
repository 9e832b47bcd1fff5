//! The three feature words of the superblock.
//!
//! A file system with an unknown `compat` feature may still be written, and with an unknown
//! `ro_compat` feature still be read. An unknown `incompat` feature forbids both. Source: kernel
//! documentation, "Super Block".

bitflags::bitflags! {
    /// `s_feature_compat`: an implementation may ignore unknown features, also when it writes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// Directories are preallocated.
        const DIR_PREALLOC = 0x1;
        /// "imagic" inodes exist.
        const IMAGIC_INODES = 0x2;
        /// There is a journal.
        const HAS_JOURNAL = 0x4;
        /// Inodes may have extended attributes.
        const EXT_ATTR = 0x8;
        /// The resize inode reserves blocks for more group descriptors.
        const RESIZE_INODE = 0x10;
        /// Directories may be hash trees.
        const DIR_INDEX = 0x20;
        /// Block groups may be uninitialised; never in a released kernel.
        const LAZY_BG = 0x40;
        /// There may be inodes that snapshots exclude; never in a released kernel.
        const EXCLUDE_INODE = 0x80;
        /// Groups have exclude bitmaps of snapshots; never in a released kernel.
        const EXCLUDE_BITMAP = 0x100;
        /// Only the groups in `s_backup_bgs` have a superblock backup.
        const SPARSE_SUPER2 = 0x200;
        /// The journal may hold fast-commit blocks.
        const FAST_COMMIT = 0x400;
        /// Inode numbers never change.
        const STABLE_INODES = 0x800;
        /// An orphan file exists (`s_orphan_file_inum`).
        const ORPHAN_FILE = 0x1000;
    }

    /// `s_feature_incompat`: an implementation must refuse a file system with unknown features.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Files may be compressed.
        const COMPRESSION = 0x1;
        /// Directory entries hold the file type.
        const FILETYPE = 0x2;
        /// The journal must be replayed.
        const RECOVER = 0x4;
        /// This is an external journal, not a file system.
        const JOURNAL_DEV = 0x8;
        /// Group descriptors are spread over meta block groups.
        const META_BG = 0x10;
        /// Files are mapped by extents.
        const EXTENTS = 0x40;
        /// Block numbers have 64 bits.
        const BIT64 = 0x80;
        /// Multi-mount protection is in use.
        const MMP = 0x100;
        /// The metadata of several groups may lie together.
        const FLEX_BG = 0x200;
        /// Large attribute values live in inodes.
        const EA_INODE = 0x400;
        /// Directory entries carry data.
        const DIRDATA = 0x1000;
        /// The checksum seed is in the superblock.
        const CSUM_SEED = 0x2000;
        /// Directories may have more than 2 GiB or three htree levels.
        const LARGEDIR = 0x4000;
        /// Small files live in their inode.
        const INLINE_DATA = 0x8000;
        /// Encrypted inodes may exist.
        const ENCRYPT = 0x10000;
        /// Directories may fold case.
        const CASEFOLD = 0x20000;
    }

    /// `s_feature_ro_compat`: an implementation must not write a file system with unknown features,
    /// but may read it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RoCompat: u32 {
        /// Only some groups have a superblock backup: 0, 1 and the powers of 3, 5 and 7.
        const SPARSE_SUPER = 0x1;
        /// Files of 2 GiB and more may exist.
        const LARGE_FILE = 0x2;
        /// Directories are B-trees; never in a released kernel.
        const BTREE_DIR = 0x4;
        /// `i_blocks` has 48 bits, and may count file-system blocks.
        const HUGE_FILE = 0x8;
        /// Group descriptors have a crc16, and groups may be uninitialised.
        const GDT_CSUM = 0x10;
        /// Directories may have more than 64998 subdirectories.
        const DIR_NLINK = 0x20;
        /// Inodes promise `s_min_extra_isize` extra bytes.
        const EXTRA_ISIZE = 0x40;
        /// There are snapshots; never in a released kernel.
        const HAS_SNAPSHOT = 0x80;
        /// Quotas are kept in hidden inodes.
        const QUOTA = 0x100;
        /// Blocks are allocated in clusters.
        const BIGALLOC = 0x200;
        /// All metadata has a crc32c.
        const METADATA_CSUM = 0x400;
        /// There are replicas; never in a released kernel.
        const REPLICA = 0x800;
        /// The file system must not be written.
        const READONLY = 0x1000;
        /// Project quotas are kept.
        const PROJECT = 0x2000;
        /// Files may share blocks, so nothing may be written.
        const SHARED_BLOCKS = 0x4000;
        /// Verity inodes may exist.
        const VERITY = 0x8000;
        /// The orphan file may hold orphans.
        const ORPHAN_PRESENT = 0x10000;
    }
}

const COMPAT_NAMES: &[(Compat, &str)] = &[
    (Compat::DIR_PREALLOC, "dir_prealloc"),
    (Compat::IMAGIC_INODES, "imagic_inodes"),
    (Compat::HAS_JOURNAL, "has_journal"),
    (Compat::EXT_ATTR, "ext_attr"),
    (Compat::RESIZE_INODE, "resize_inode"),
    (Compat::DIR_INDEX, "dir_index"),
    (Compat::LAZY_BG, "lazy_bg"),
    (Compat::EXCLUDE_INODE, "exclude_inode"),
    (Compat::EXCLUDE_BITMAP, "snapshot_bitmap"),
    (Compat::SPARSE_SUPER2, "sparse_super2"),
    (Compat::FAST_COMMIT, "fast_commit"),
    (Compat::STABLE_INODES, "stable_inodes"),
    (Compat::ORPHAN_FILE, "orphan_file"),
];

const INCOMPAT_NAMES: &[(Incompat, &str)] = &[
    (Incompat::COMPRESSION, "compression"),
    (Incompat::FILETYPE, "filetype"),
    (Incompat::RECOVER, "needs_recovery"),
    (Incompat::JOURNAL_DEV, "journal_dev"),
    (Incompat::META_BG, "meta_bg"),
    (Incompat::EXTENTS, "extent"),
    (Incompat::BIT64, "64bit"),
    (Incompat::MMP, "mmp"),
    (Incompat::FLEX_BG, "flex_bg"),
    (Incompat::EA_INODE, "ea_inode"),
    (Incompat::DIRDATA, "dirdata"),
    (Incompat::CSUM_SEED, "metadata_csum_seed"),
    (Incompat::LARGEDIR, "large_dir"),
    (Incompat::INLINE_DATA, "inline_data"),
    (Incompat::ENCRYPT, "encrypt"),
    (Incompat::CASEFOLD, "casefold"),
];

const RO_COMPAT_NAMES: &[(RoCompat, &str)] = &[
    (RoCompat::SPARSE_SUPER, "sparse_super"),
    (RoCompat::LARGE_FILE, "large_file"),
    (RoCompat::BTREE_DIR, "btree_dir"),
    (RoCompat::HUGE_FILE, "huge_file"),
    (RoCompat::GDT_CSUM, "uninit_bg"),
    (RoCompat::DIR_NLINK, "dir_nlink"),
    (RoCompat::EXTRA_ISIZE, "extra_isize"),
    (RoCompat::HAS_SNAPSHOT, "snapshot"),
    (RoCompat::QUOTA, "quota"),
    (RoCompat::BIGALLOC, "bigalloc"),
    (RoCompat::METADATA_CSUM, "metadata_csum"),
    (RoCompat::REPLICA, "replica"),
    (RoCompat::READONLY, "read-only"),
    (RoCompat::PROJECT, "project"),
    (RoCompat::SHARED_BLOCKS, "shared_blocks"),
    (RoCompat::VERITY, "verity"),
    (RoCompat::ORPHAN_PRESENT, "orphan_present"),
];

macro_rules! names {
    ($type:ident, $table:ident, $word:literal) => {
        impl $type {
            /// Returns the names of the set bits as `mke2fs -O` prints them; an unknown bit is
            /// named by its value.
            #[must_use]
            pub fn names(self) -> Vec<String> {
                let name = |bit: Self| match $table.iter().find(|(known, _)| *known == bit) {
                    Some((_, name)) => (*name).to_owned(),
                    None => format!(concat!($word, " bit {:#x}"), bit.bits()),
                };
                let bits = (0..u32::BITS).map(|shift| Self::from_bits_retain(1 << shift));
                bits.filter(|bit| self.contains(*bit)).map(name).collect()
            }
        }
    };
}

names!(Compat, COMPAT_NAMES, "compat");
names!(Incompat, INCOMPAT_NAMES, "incompat");
names!(RoCompat, RO_COMPAT_NAMES, "ro_compat");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_named_by_value() {
        let bits = Incompat::EXTENTS | Incompat::from_bits_retain(0x8_0000);
        assert_eq!(bits.names(), ["extent", "incompat bit 0x80000"]);
        assert_eq!(RoCompat::from_bits_retain(0x8000_0000).names(), ["ro_compat bit 0x80000000"]);
    }

    #[test]
    fn every_known_bit_has_a_name() {
        let all = [Compat::all().names(), Incompat::all().names(), RoCompat::all().names()].concat();
        assert!(all.iter().all(|name| !name.contains(" bit ")), "{all:?}");
    }
}
