//! The paths whose prose is finished: an excluded phrase in them fails the check.

/// Path prefixes of files and folders, one a line and sorted, relative to the root of the workspace.
const FINISHED: &[&str] = &[
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "crates/bench/",
    "crates/cli/",
    "crates/device/",
    "crates/format/",
    "crates/mount/",
    "crates/parext4/src/allocator/",
    "crates/parext4/src/block_io/",
    "crates/parext4/src/body/",
    "crates/parext4/src/dirty_files/",
    "crates/parext4/src/engine/",
    "crates/parext4/src/error/",
    "crates/parext4/src/extent_map/",
    "crates/parext4/src/file/direct/",
    "crates/parext4/src/file/query/",
    "crates/parext4/src/file/queue/",
    "crates/parext4/src/file/space/",
    "crates/parext4/src/inode/",
    "crates/parext4/src/journal/",
    "crates/parext4/src/lib.rs",
    "crates/parext4/src/memory/",
    "crates/parext4/src/meta/",
    "crates/parext4/src/mkfs/",
    "crates/parext4/src/namespace/",
    "crates/parext4/src/node/",
    "crates/parext4/src/page_cache/",
    "crates/parext4/src/volume/",
    "crates/parext4/src/writeback/",
    "crates/parext4/src/xattr/",
    "crates/parext4/tests/",
    "crates/rangelock/",
    "crates/testkit/",
    "docs/",
    "xtask/",
];

/// Returns true if the prose of `file` must be free of excluded phrases.
pub fn covers(file: &str) -> bool {
    FINISHED.iter().any(|path| file.starts_with(path))
}
