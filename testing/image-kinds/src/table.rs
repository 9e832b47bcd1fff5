//! The table of kinds. A new feature needs one line here, and a level in `pairs` if it can be
//! combined.

use crate::kind::{Kind, Then};

const fn kind(name: &'static str, mib: u64, mke2fs: &'static str) -> Kind {
    Kind::new(name, mib, mke2fs)
}

/// All kinds. The first one is what mke2fs makes by default.
#[rustfmt::skip]
pub const KINDS: &[Kind] = &[
    kind("ext4", 24, "-b 4096"),
    kind("blocks of 1 KiB", 16, "-b 1024"),
    kind("blocks of 2 KiB", 16, "-b 2048"),
    // Linux mounts larger blocks from 6.19 on.
    kind("blocks of 8 KiB", 24, "-b 8192 -O orphan_file,large_dir,ea_inode").not_mounted(),
    kind("blocks of 16 KiB", 40, "-b 16384 -O ^64bit,^metadata_csum,uninit_bg").not_mounted(),
    kind("blocks of 32 KiB", 72, "-b 32768 -O inline_data -I 512").not_mounted(),
    kind("blocks of 64 KiB", 48, "-b 65536 -O ^has_journal -N 1024").not_mounted(),
    kind("blocks of 64 KiB, indirect", 48, "-b 65536 -O ^has_journal,^extent,^64bit -N 1024").not_mounted(),
    kind("blocks of 64 KiB, old", 48, "-b 65536 -O none,extent,ext_attr -I 128 -N 1024").not_mounted(),

    // Old formats, and what tune2fs makes of them.
    kind("revision 0", 12, "-r 0 -t ext2 -b 1024 -O none"),
    kind("ext2", 12, "-t ext2 -b 1024"),
    kind("ext2, 4 KiB", 16, "-t ext2 -b 4096"),
    kind("ext2 to ext3", 16, "-t ext2 -b 1024 -I 128").converted("-j"),
    kind("ext3", 16, "-t ext3 -b 1024"),
    kind("ext3 with data journalling", 20, "-t ext3 -b 4096").mounted("data=journal"),
    kind("ext3 to ext4", 16, "-t ext3 -b 1024").converted("-O extent,uninit_bg,dir_index"),
    kind("to checksums", 16, "-b 1024 -O ^metadata_csum,^64bit").converted("-O metadata_csum"),
    kind("from checksums", 16, "-b 1024 -O metadata_csum").converted("-O ^metadata_csum"),
    kind("nothing but extents", 12, "-b 1024 -I 128 -O none,extent -E lazy_itable_init=0"),

    // Without a feature.
    kind("no extents", 16, "-b 1024 -O ^extent,^64bit"),
    kind("no extents, 4 KiB", 24, "-b 4096 -O ^extent,^64bit"),
    kind("no filetype, crc32c", 16, "-b 2048 -O ^filetype,^large_file,^huge_file,^extra_isize"),
    kind("no filetype, crc16", 16, "-b 1024 -I 128 -O ^filetype,^metadata_csum,uninit_bg,^64bit,^flex_bg"),
    kind("no large_file", 16, "-b 1024 -O ^large_file,^huge_file"),
    kind("no dir_index", 16, "-b 1024 -O ^dir_index"),
    kind("hashes by TEA", 16, "-b 1024").converted("-E hash_alg=tea"),
    kind("hashes of the first kernels", 16, "-b 2048").converted("-E hash_alg=legacy"),
    kind("no dir_nlink, no ext_attr", 16, "-b 1024 -O ^dir_nlink,^ext_attr"),
    kind("no 64bit", 16, "-b 1024 -O ^64bit"),
    kind("no journal", 16, "-b 1024 -O ^has_journal"),
    kind("no checksums", 16, "-b 1024 -O ^metadata_csum,^uninit_bg"),
    kind("inodes of 128 bytes", 16, "-b 1024 -I 128"),
    kind("inodes of a block", 16, "-b 1024 -I 1024"),

    // Groups and their copies.
    kind("old groups", 16, "-b 1024 -O ^flex_bg,^metadata_csum,^uninit_bg,^64bit"),
    kind("uninit_bg", 16, "-b 1024 -O ^metadata_csum,uninit_bg"),
    kind("backups in all groups", 20, "-b 1024 -g 2048 -O ^sparse_super,^resize_inode"),
    kind("sparse_super2", 20, "-b 1024 -g 1024 -O sparse_super2,^resize_inode"),
    kind("odd groups", 24, "-b 4096 -g 1000 -N 1736 -I 512 -G 2"),
    kind("a tiny last group", 25, "-b 1024 -i 3000 -I 1024 -O ^flex_bg"),
    kind("meta groups", 24, "-b 1024 -g 512 -O meta_bg,^resize_inode"),
    kind("meta groups, old", 24, "-b 1024 -g 256 -O meta_bg,^resize_inode,^64bit,^metadata_csum,^uninit_bg,^sparse_super,^flex_bg,^filetype"),
    kind("meta groups after a table", 6, "-b 1024 -g 512 -O ^resize_inode -J size=1").then(Then::Grow(20)),
    kind("made by the Hurd, hashes without a sign", 8, "-b 1024 -o hurd -I 128 -O ^64bit,^metadata_csum,^huge_file,^dir_nlink")
        .then(Then::Debugfs("ssv flags 2")),

    // Clusters.
    kind("clusters of 2 blocks", 24, "-b 1024 -O bigalloc -C 2048 -g 1024"),
    kind("clusters of 64 blocks", 48, "-b 1024 -O bigalloc,^resize_inode -C 65536 -g 256"),
    kind("clusters of 4 large blocks, orphan_file", 32, "-b 4096 -O bigalloc,orphan_file,^flex_bg,ea_inode -C 16384 -g 256"),
    kind("clusters of 16 large blocks, inline_data", 48, "-b 4096 -O bigalloc,inline_data -C 65536"),
    kind("clusters, meta groups, no checksums", 40, "-b 1024 -O bigalloc,meta_bg,^resize_inode,^metadata_csum,^uninit_bg,^64bit -C 8192 -g 256"),
    kind("clusters, crc16", 40, "-b 2048 -O bigalloc,^metadata_csum,uninit_bg -C 16384 -g 256"),
    kind("clusters, fast_commit", 32, "-b 4096 -O bigalloc,fast_commit -C 32768"),

    // Journals.
    kind("journal of 32 bits without checksums", 16, "-b 1024 -O ^64bit,^metadata_csum"),
    kind("journal with checksums of version 1", 16, "-b 1024 -O ^metadata_csum").mounted("journal_checksum"),
    kind("journal with asynchronous commits", 24, "-b 4096").mounted("journal_async_commit,data=writeback"),
    kind("fast_commit", 24, "-b 1024 -O fast_commit"),
    kind("fast_commit, 4 KiB", 32, "-b 4096 -O fast_commit"),
    kind("orphan_file", 16, "-b 1024 -O orphan_file"),

    // Later features.
    kind("inline_data", 16, "-b 1024 -O inline_data"),
    kind("inline_data without extents", 16, "-b 1024 -O inline_data,^extent,^64bit"),
    kind("inline_data in 512 bytes", 16, "-b 4096 -I 512 -O inline_data"),
    kind("ea_inode", 16, "-b 1024 -O ea_inode"),
    kind("ea_inode and inline_data", 16, "-b 2048 -O ea_inode,inline_data"),
    kind("large_dir", 16, "-b 1024 -O large_dir"),
    kind("mmp", 16, "-b 1024 -O mmp -E mmp_update_interval=1"),
    kind("metadata_csum_seed", 16, "-b 1024 -O metadata_csum_seed"),
    kind("encrypt", 16, "-b 4096 -O encrypt"),
    kind("quota", 24, "-b 4096 -O quota").not_mounted(),
    kind("project", 24, "-b 1024 -O quota,project -E quotatype=usrquota:grpquota:prjquota").not_mounted(),
    kind("clusters, quota", 32, "-b 4096 -O bigalloc,quota,project -C 16384 -E quotatype=usrquota:grpquota:prjquota").not_mounted(),
    kind("verity", 16, "-b 4096 -O verity"),
    kind("casefold", 16, "-b 1024 -O casefold").not_mounted(),
    kind("casefold and large_dir", 16, "-b 4096 -O casefold,large_dir,^metadata_csum").not_mounted(),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::KINDS;

    #[test]
    fn names_select_one_kind() {
        let names: BTreeSet<_> = KINDS.iter().map(|kind| &*kind.name).collect();
        assert_eq!(names.len(), KINDS.len());
    }
}
