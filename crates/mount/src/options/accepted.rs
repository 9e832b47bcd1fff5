//! Options of ext4, fuse2fs, other FUSE servers and mount(8) that have no effect on a mount of
//! parext4. Tables give the reason why each option is accepted or refused; docs/mount-options.md
//! has the same rows.
//!
//! The tables spell an option as manual pages do: `name` takes no value, `name=` any value,
//! `name=a|b` one of two values.

use super::error::OptionError;

/// Rows of a table: names of options, and the reason that they share.
type Rows = &'static [(&'static [&'static str], &'static str)];

/// Options for other programs, and the use that these make of them.
const OF_OTHERS: Rows = &[
    (
        &[
            "defaults", "auto", "noauto", "nofail", "_netdev", "user", "user=", "users", "nouser", "owner",
            "group", "comment=",
        ],
        "mount(8) and systemd have acted on it",
    ),
    (&["helper=", "uhelper=", "loop", "loop="], "mount(8) uses it; an image file needs no loop device"),
    (&["user_id=", "group_id=", "rootmode=", "fd="], "the server sets it when it mounts"),
];

/// Accepted options without effect, and the reason.
const ACCEPTED: Rows = &[
    (
        &["silent", "loud", "debug", "fuse2fs_debug", "nodebug"],
        "messages are the same with it and without it",
    ),
    (&["mand", "nomand"], "Linux no longer has mandatory locks"),
    (&["lazytime", "nolazytime"], "times are always written with the next commit"),
    (&["iversion", "noiversion", "i_version", "noi_version"], "FUSE does not transfer inode versions"),
    (&["default_permissions"], "the kernel always checks permissions"),
    (&["subtype="], "the type is always fuse.parext4, by which mount(8) and umount(8) find their helpers"),
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
        "use the options cache and threads",
    ),
    (&["hard_remove", "use_ino", "readdir_ino", "intr", "nointr"], "it is always in effect"),
    (
        &["auto_unmount"],
        "not supported; \"parext4 mount\" and \"parext4 umount\" remove what is left after the server was killed",
    ),
    (&["no_default_opts", "force", "lockfile="], "only fuse2fs needs it; parext4 locks the image"),
    (
        &["acl", "noacl", "user_xattr", "nouser_xattr"],
        "access control lists and user attributes are always in effect",
    ),
    (&["nouid32"], "user and group numbers always have 32 bits"),
    (&["check=none", "nocheck"], "structures are checked where they are used"),
    (&["oldalloc", "orlov", "reservation", "noreservation", "bh", "nobh"], "ext4 no longer has it either"),
    (
        &[
            "delalloc",
            "nodelalloc",
            "stripe=",
            "mb_optimize_scan=",
            "mb_optimize_scan",
            "dioread_lock",
            "dioread_nolock",
            "nodioread_nolock",
            "max_batch_time=",
            "min_batch_time=",
            "journal_ioprio=",
            "inode_readahead_blks=",
            "prefetch_block_bitmaps",
            "no_prefetch_block_bitmaps",
            "mbcache",
            "nombcache",
            "no_mbcache",
            "mblk_io_submit",
            "nomblk_io_submit",
            "debug_want_extra_isize=",
            "fc_debug_force",
            "fc_debug_max_replay=",
        ],
        "it tunes the kernel's ext4; use cache, threads and policy",
    ),
    (
        &["block_validity", "noblock_validity"],
        "data blocks are always checked against the file system's own blocks",
    ),
    (
        &["data=ordered|writeback|journal", "data_err=ignore|abort"],
        "data is always on the device before its transaction commits, and a failed write always stops the volume",
    ),
    (&["barrier", "barrier=0|1", "nobarrier"], "a commit always flushes the device's cache"),
    (
        &["auto_da_alloc", "auto_da_alloc=0|1", "noauto_da_alloc"],
        "a file is always written back before it replaces another one",
    ),
    (
        &["journal_checksum", "nojournal_checksum", "journal_async_commit", "nojournal_async_commit"],
        "the features of the volume decide on journal checksums",
    ),
    (&["init_itable", "init_itable=", "noinit_itable"], "inode tables are not initialised in the background"),
    (&["discard", "nodiscard"], "freed blocks are only discarded by fstrim(8)"),
    (&["max_dir_size_kb="], "the size of a directory is not limited"),
    (&["dax", "dax=inode|never|always"], "files are never mapped directly from the device"),
    (&["warn_on_error", "nowarn_on_error"], "errors are always logged"),
    (
        &["usrquota=", "grpquota=", "usrjquota=", "grpjquota=", "jqfmt="],
        "quota files in directories are not kept; use the feature quota (\"tune2fs -O quota\")",
    ),
];

/// Options that must not be ignored, and the reason why they are refused.
const REFUSED: Rows = &[
    (&["sb="], "only the first superblock is read; repair the volume with \"e2fsck -b\""),
    (&["journal="], "name a journal device with journal_path="),
    (&["abort", "test_dummy_encryption", "test_dummy_encryption="], "it is for tests of the kernel's ext4"),
    (&["inlinecrypt"], "parext4 has no keys for encrypted files"),
    (&["errors=panic"], "a program cannot stop the machine; use \"remount-ro\""),
    (&["context=", "fscontext=", "defcontext=", "rootcontext="], "security labels come from the volume"),
    (&["nosymfollow"], "the mount follows symbolic links"),
    (&["fakeroot"], "the kernel checks permissions; use uid= and gid="),
    (&["umask=", "setuid=", "drop_privileges", "modules="], "it belongs to the libfuse library"),
    (&["sizelimit="], "the superblock has the size of the volume"),
];

/// Accepts or refuses an option that has no effect.
///
/// # Errors
/// [`OptionError::Unsupported`] with the reason, or [`OptionError::Unknown`].
pub(super) fn accept(option: &str) -> Result<(), OptionError> {
    // By convention, options with these prefixes are for programs in user space.
    if is_of_other_program(option) || reason(ACCEPTED, option).is_some() {
        return Ok(());
    }
    let option = option.to_owned();
    Err(match reason(REFUSED, &option) {
        Some(because) => OptionError::Unsupported { option, because },
        None => OptionError::Unknown(option),
    })
}

/// Returns the options of a list, separated by commas, that the mount accepts but does not act on,
/// with the reason for each. Leaves out the options for other programs.
pub(super) fn without_effect(list: &str) -> impl Iterator<Item = (&str, &'static str)> {
    let ours = list.split(',').filter(|option| !is_of_other_program(option));
    ours.filter_map(|option| Some((option, reason(ACCEPTED, option)?)))
}

/// Returns true if an option is for a program that mounts the volume, or for systemd.
fn is_of_other_program(option: &str) -> bool {
    option.starts_with("x-") || option.starts_with("X-") || reason(OF_OTHERS, option).is_some()
}

/// Returns the reason of the first row of a table that contains an option.
fn reason(table: Rows, option: &str) -> Option<&'static str> {
    let has = |names: &[&str]| names.iter().any(|name| matches(name, option));
    table.iter().find(|(names, _)| has(names)).map(|&(_, because)| because)
}

/// Returns true if an option matches an entry of a table.
pub(super) fn matches(entry: &str, option: &str) -> bool {
    match (entry.split_once('='), option.split_once('=')) {
        (None, None) => entry == option,
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
        for (names, because) in OF_OTHERS.iter().chain(ACCEPTED).chain(REFUSED) {
            let names: Vec<String> =
                names.iter().map(|name| format!("`{}`", name.replace('|', "\\|"))).collect();
            let row = format!("| {} | {because} |\n", names.join(", "));
            assert!(document.contains(&row), "docs/mount-options.md lacks the line\n{row}");
        }
    }

    #[test]
    fn values_are_checked_against_the_table() {
        for option in
            ["stripe=16", "barrier=0", "data=journal", "x-systemd.automount", "X-mount.mkdir=0755", "user=me"]
        {
            assert_eq!(accept(option), Ok(()), "{option}");
        }
        let list = "rw,stripe=16,user,x-a,nobarrier";
        assert_eq!(
            without_effect(list).map(|(option, _)| option).collect::<Vec<_>>(),
            ["stripe=16", "nobarrier"]
        );
        for option in ["barrier=2", "data=none", "stripe", "acl=1", "frobnicate", "frobnicate=1"] {
            assert_eq!(accept(option), Err(OptionError::Unknown(option.to_owned())), "{option}");
        }
        for option in ["sb=32768", "abort", "errors=panic"] {
            assert!(matches!(accept(option), Err(OptionError::Unsupported { .. })), "{option}");
        }
    }
}
