//! Options of ext4, fuse2fs, other FUSE servers and mount(8) that have no effect here. The table gives the reason why
//! each one is accepted or refused. docs/mount-options.md lists them.
//!
//! An option is written as in the manual pages: `name` has no value, `name=` has any, `name=a|b` one of these.

use super::error::OptionError;

/// Options without effect, and why they need none.
const ACCEPTED: &[(&[&str], &str)] = &[
    (
        &[
            "defaults", "auto", "noauto", "nofail", "_netdev", "user", "user=", "users", "nouser", "owner",
            "group", "comment=",
        ],
        "for mount(8) and systemd, which have acted on it",
    ),
    (&["helper=", "uhelper=", "loop", "loop="], "for mount(8); an image file needs no loop device"),
    (&["silent", "loud", "debug", "fuse2fs_debug", "nodebug"], "messages are the same with and without"),
    (&["mand", "nomand"], "Linux has no mandatory locks any more"),
    (&["lazytime", "nolazytime"], "times are written with the next commit in any case"),
    (&["iversion", "noiversion", "i_version", "noi_version"], "FUSE passes no version of an inode on"),
    (&["default_permissions"], "the kernel always checks permissions"),
    (&["subtype="], "the type stays fuse.parext4, by which mount(8) and umount(8) find their helpers"),
    (&["user_id=", "group_id=", "rootmode=", "fd="], "known to the kernel when it mounts"),
    (
        &["blksize=", "blkdev", "max_read=", "max_write=", "max_background=", "congestion_threshold="],
        "the server sets it",
    ),
    (
        &[
            "direct_io",
            "kernel_cache",
            "auto_cache",
            "noauto_cache",
            "big_writes",
            "async_read",
            "sync_read",
            "async_dio",
            "splice_read",
            "no_splice_read",
            "splice_write",
            "no_splice_write",
            "splice_move",
            "no_splice_move",
            "writeback_cache",
            "no_writeback_cache",
            "attr_timeout=",
            "entry_timeout=",
            "negative_timeout=",
            "ac_attr_timeout=",
            "noforget",
            "remember=",
            "clone_fd",
            "max_threads=",
            "max_idle_threads=",
            "directio",
            "nodirectio",
        ],
        "the options cache and threads decide",
    ),
    (&["hard_remove", "use_ino", "readdir_ino", "intr", "nointr", "nonempty"], "so in any case"),
    (&["auto_unmount"], "not done; \"parext4 umount\" ends a mount whose server was killed"),
    (&["no_default_opts", "force", "lockfile="], "fuse2fs needs it, parext4 locks the image itself"),
    (
        &["acl", "noacl", "user_xattr", "nouser_xattr"],
        "access control lists and user attributes are always in effect",
    ),
    (&["nouid32"], "owners have 32 bits"),
    (&["check=none", "nocheck"], "structures are checked where they are used"),
    (
        &["oldalloc", "orlov", "reservation", "noreservation", "bh", "nobh"],
        "ext4 has no such choice any more either",
    ),
    (
        &[
            "delalloc",
            "nodelalloc",
            "stripe=",
            "mb_optimize_scan=",
            "mb_optimize_scan",
            "dioread_lock",
            "dioread_nolock",
            "max_batch_time=",
            "min_batch_time=",
            "journal_ioprio=",
            "inode_readahead_blks=",
            "prefetch_block_bitmaps",
            "no_prefetch_block_bitmaps",
            "mbcache",
            "nombcache",
            "no_mbcache",
        ],
        "tunes the kernel's ext4; parext4 is tuned by cache, threads and policy",
    ),
    (&["block_validity", "noblock_validity"], "blocks are always checked against the file system's own"),
    (
        &["data=ordered|writeback|journal", "data_err=ignore|abort"],
        "data is on the device before the transaction that shows it, and a write that fails stops the volume",
    ),
    (
        &["barrier", "barrier=0|1", "nobarrier"],
        "the device's cache is always flushed where a commit needs it",
    ),
    (
        &["auto_da_alloc", "auto_da_alloc=0|1", "noauto_da_alloc"],
        "a file that replaces another one is always written back first",
    ),
    (
        &["journal_checksum", "nojournal_checksum", "journal_async_commit", "nojournal_async_commit"],
        "the journal has the checksums that the features of the volume say",
    ),
    (&["init_itable", "init_itable=", "noinit_itable"], "inode tables are not initialised in the background"),
    (&["discard", "nodiscard"], "freed blocks are discarded by fstrim(8) only"),
    (&["max_dir_size_kb="], "the size of a directory is not limited"),
    (&["dax", "dax=inode|never|always"], "files are never mapped straight from the device"),
    (&["warn_on_error", "nowarn_on_error"], "errors are in the log"),
    (
        &[
            "quota",
            "noquota",
            "usrquota",
            "grpquota",
            "prjquota",
            "usrquota=",
            "grpquota=",
            "usrjquota=",
            "grpjquota=",
            "jqfmt=",
        ],
        "quotas are neither kept nor enforced; a volume with the feature can only be read",
    ),
];

/// Options that cannot be ignored, and why they are refused.
const REFUSED: &[(&[&str], &str)] = &[
    (&["sb="], "only the first superblock is read; repair the volume with \"e2fsck -b\""),
    (&["journal_dev=", "journal_path=", "journal="], "the journal must be in the volume"),
    (&["abort", "test_dummy_encryption", "test_dummy_encryption="], "it is for tests of the kernel's ext4"),
    (&["inlinecrypt"], "encrypted volumes are not supported"),
    (&["errors=panic"], "a program cannot stop the machine; use \"remount-ro\""),
    (&["context=", "fscontext=", "defcontext=", "rootcontext="], "labels come from the volume"),
    (&["nosymfollow"], "the mount follows symbolic links"),
    (&["fakeroot"], "the kernel checks permissions; use uid= and gid="),
    (&["umask=", "setuid=", "drop_privileges", "modules="], "it belongs to the libfuse library"),
    (&["sizelimit="], "the volume says how long it is"),
];

/// Accepts or refuses an option that has no effect.
///
/// # Errors
/// [`OptionError::Unsupported`] with the reason, or [`OptionError::Unknown`].
pub(super) fn accept(option: &str) -> Result<(), OptionError> {
    // For programs in user space, by convention.
    if option.starts_with("x-") || option.starts_with("X-") || is_in(ACCEPTED, option).is_some() {
        return Ok(());
    }
    let option = option.to_owned();
    Err(match is_in(REFUSED, &option) {
        Some(because) => OptionError::Unsupported { option, because },
        None => OptionError::Unknown(option),
    })
}

fn is_in(table: &[(&[&str], &'static str)], option: &str) -> Option<&'static str> {
    let has = |names: &[&str]| names.iter().any(|name| fits(name, option));
    table.iter().find(|(names, _)| has(names)).map(|&(_, because)| because)
}

/// Whether an option is as it is written in a table.
fn fits(written: &str, option: &str) -> bool {
    match (written.split_once('='), option.split_once('=')) {
        (None, None) => written == option,
        (Some((name, "")), Some((given, _))) => name == given,
        (Some((name, values)), Some((given, value))) => {
            name == given && values.split('|').any(|one| one == value)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_documented_with_its_reason() {
        let document = include_str!("../../../../docs/mount-options.md");
        for (names, because) in ACCEPTED.iter().chain(REFUSED) {
            let names: Vec<String> =
                names.iter().map(|name| format!("`{}`", name.replace('|', "\\|"))).collect();
            let row = format!("| {} | {because} |\n", names.join(", "));
            assert!(document.contains(&row), "docs/mount-options.md lacks the line\n{row}");
        }
    }

    #[test]
    fn values_are_looked_at_where_there_is_a_list() {
        for option in
            ["stripe=16", "barrier=0", "data=journal", "x-systemd.automount", "X-mount.mkdir=0755", "user=me"]
        {
            assert_eq!(accept(option), Ok(()), "{option}");
        }
        for option in ["barrier=2", "data=none", "stripe", "acl=1", "frobnicate", "frobnicate=1"] {
            assert_eq!(accept(option), Err(OptionError::Unknown(option.to_owned())), "{option}");
        }
        for option in ["sb=32768", "abort", "errors=panic"] {
            assert!(matches!(accept(option), Err(OptionError::Unsupported { .. })), "{option}");
        }
    }
}
