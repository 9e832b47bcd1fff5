//! Tests that docs/mount-options.md states the outcome of each option, and that it lists the
//! options of other programs.

use super::accepted::{accept, matches};
use super::{MountOptions, OptionError};

/// The outcome of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    HasEffect,
    Ignored,
    Refused,
}

/// The headings of the document, and the outcome of the options below them.
const SECTIONS: [(&str, Outcome); 3] = [
    ("## Options with an effect", Outcome::HasEffect),
    ("## Options without an effect", Outcome::Ignored),
    ("## Options that are refused", Outcome::Refused),
];

/// Valid values of options that do not accept every number.
const VALUES: &[(&str, &str)] =
    &[("cache", "direct"), ("policy", "exclusive"), ("metadata_cache", "64M"), ("page_cache", "1G")];

/// The options of ext4(5) and of the table of the kernel's ext4 (Linux 6.18).
const EXT4: &str = "acl noacl bsddf minixdf check=none nocheck debug errors=continue errors=remount-ro errors=panic grpid \
    bsdgroups nogrpid sysvgroups grpquota noquota quota usrquota nouid32 oldalloc orlov resgid=1 resuid=1 sb=8193 user_xattr \
    nouser_xattr journal_dev=0x700 journal_path=/dev/sdb norecovery noload data=journal data=ordered data=writeback data_err=ignore \
    data_err=abort barrier=0 barrier=1 barrier nobarrier commit=5 jqfmt=vfsold jqfmt=vfsv0 jqfmt=vfsv1 usrjquota=aquota.user \
    usrjquota= grpjquota=aquota.group grpjquota= journal_checksum nojournal_checksum journal_async_commit inode_readahead_blks=32 \
    stripe=16 delalloc nodelalloc max_batch_time=15000 min_batch_time=0 journal_ioprio=3 abort auto_da_alloc auto_da_alloc=0 \
    noauto_da_alloc noinit_itable init_itable init_itable=10 discard nodiscard block_validity noblock_validity dioread_lock \
    dioread_nolock nodioread_nolock max_dir_size_kb=64 i_version nombcache no_mbcache prjquota bh nobh mblk_io_submit \
    nomblk_io_submit reservation noreservation journal=1 dax dax=always dax=inode dax=never warn_on_error nowarn_on_error \
    debug_want_extra_isize=32 fc_debug_force fc_debug_max_replay=1 test_dummy_encryption test_dummy_encryption=v2 inlinecrypt \
    prefetch_block_bitmaps no_prefetch_block_bitmaps mb_optimize_scan=1";

/// The options of mount(8) for all file systems, and what fstab(5) and systemd.mount(5) add.
const FSTAB: &str = "defaults auto noauto nofail _netdev user users nouser owner group comment=x ro rw sync async dirsync atime \
    noatime diratime nodiratime relatime norelatime strictatime nostrictatime lazytime nolazytime suid nosuid dev nodev exec noexec \
    mand nomand iversion noiversion silent loud remount context=x fscontext=x defcontext=x rootcontext=x nosymfollow loop \
    loop=/dev/loop0 offset=512 sizelimit=4096 X-mount.mkdir X-mount.mkdir=0755 X-mount.subdir=a X-mount.idmap=0:1:1 X-fstrim.notrim \
    x-initrd.mount x-systemd.automount x-systemd.requires=a.service x-systemd.device-timeout=9 x-systemd.mount-timeout=9 \
    x-systemd.makefs x-systemd.growfs x-systemd.rw-only x-gvfs-show";

/// Returns the options in the first column of the document's tables, with their outcomes.
fn documented() -> Vec<(String, Outcome)> {
    let document = include_str!("../../../../docs/mount-options.md");
    let section = |(heading, outcome): (&str, Outcome)| {
        let section = document.split(heading).nth(1).expect("the heading").split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
        let options = rows.flat_map(|cell| cell.split('`').step_by(2));
        let options: Vec<_> = options.filter(|option| !option.is_empty()).collect();
        options.into_iter().map(move |option| (option.replace("\\|", "|"), outcome))
    };
    SECTIONS.into_iter().flat_map(section).collect()
}

/// Returns examples, as a user writes them, of an option as the document spells it.
fn examples(documented: &str) -> Vec<String> {
    match documented.split_once('=') {
        None => vec![documented.replace("...", "any")],
        Some((name, "")) => {
            let value = VALUES.iter().find(|(known, _)| *known == name).map_or("1", |(_, value)| value);
            vec![format!("{name}={value}")]
        }
        Some((name, values)) => values.split('|').map(|value| format!("{name}={value}")).collect(),
    }
}

/// Returns the outcome of an option.
fn outcome(option: &str) -> Result<Outcome, OptionError> {
    let added = MountOptions::new().add(option);
    match (added, accept(option)) {
        (Ok(()), Ok(())) => Ok(Outcome::Ignored),
        (Ok(()), Err(_)) => Ok(Outcome::HasEffect),
        (Err(OptionError::Unsupported { .. }), _) => Ok(Outcome::Refused),
        // The value must be the number of an existing device.
        (Err(OptionError::Value { .. }), _) if option.starts_with("journal_dev=") => Ok(Outcome::HasEffect),
        (Err(error), _) => Err(error),
    }
}

#[test]
fn the_document_says_what_becomes_of_each_option() {
    for (option, expected) in documented() {
        for example in examples(&option) {
            assert_eq!(outcome(&example), Ok(expected), "{example}");
        }
    }
}

#[test]
fn the_options_of_ext4_and_of_fstab_are_documented() {
    let documented = documented();
    let is_prefix =
        |entry: &str, word: &str| entry.strip_suffix("...").is_some_and(|start| word.starts_with(start));
    for word in EXT4.split_whitespace().chain(FSTAB.split_whitespace()) {
        let found = documented.iter().find(|(entry, _)| matches(entry, word) || is_prefix(entry, word));
        let Some(&(_, expected)) = found else { panic!("docs/mount-options.md lacks {word}") };
        assert_eq!(outcome(word), Ok(expected), "{word}");
    }
}
