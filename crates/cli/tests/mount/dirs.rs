//! Large directories, listed while they change.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use testkit::fuse_mount::{FuseMount, tool};

fn names(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_large_directory_has_each_name_once() {
    for (block_size, options) in [("1024", "cache=kernel"), ("4096", "cache=direct,threads=1")] {
        let Some(fuse) = FuseMount::mounted(&["--block-size", block_size], options) else { return };
        let dir = fuse.path("dir");
        std::fs::create_dir(&dir).unwrap();
        let expected: BTreeSet<String> = (0..3000).map(|n| format!("{n}-{}", "x".repeat(n % 100))).collect();
        for name in &expected {
            std::fs::write(dir.join(name), name).unwrap();
        }
        for _ in 0..2 {
            let seen = names(&dir);
            assert_eq!(seen.len(), expected.len(), "{options}");
            assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), expected, "{options}");
            fuse.umount();
            fuse.scratch().fsck();
            fuse.mount(options);
        }
        std::fs::remove_dir_all(&dir).unwrap();
        fuse.finish();
    }
}

#[test]
fn a_listing_has_all_names_that_exist_throughout() {
    let Some(fuse) = FuseMount::mounted(&["--block-size", "1024"], "rw") else { return };
    let dir = fuse.path("dir");
    std::fs::create_dir(&dir).unwrap();
    for n in 0..400 {
        std::fs::write(dir.join(format!("stays{n}")), "").unwrap();
    }
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            for n in 0..1500 {
                std::fs::write(dir.join(format!("goes{n}")), "").unwrap();
                if n >= 50 {
                    std::fs::remove_file(dir.join(format!("goes{}", n - 50))).unwrap();
                }
            }
        });
        while !changes.is_finished() {
            let mut stays: Vec<_> =
                names(&dir).into_iter().filter(|name| name.starts_with("stays")).collect();
            stays.sort();
            stays.dedup();
            assert_eq!(stays.len(), 400);
        }
    });
    fuse.finish();
}

#[test]
fn a_removed_directory_that_is_open_is_empty() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let path = fuse.path("dir");
    std::fs::create_dir(&path).unwrap();
    let open = std::fs::File::open(&path).unwrap();
    std::fs::remove_dir(&path).unwrap();
    let listed = std::fs::read_dir(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open)));
    assert_eq!(listed.map_or(0, Iterator::count), 0);
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&open.metadata().unwrap()), 0);
    drop(open);
    fuse.finish();
}

/// A volume whose directories hash the names of each of these pairs to one value.
const WITH_EQUAL_HASHES: [&str; 4] =
    ["--block-size", "1024", "-E", "hash_seed=01234567-89ab-4def-8123-456789abcdef"];
const PAIRS: [[u32; 2]; 3] = [[25_542, 51_083], [29_994, 96_507], [116_247, 124_681]];

/// As programs of i386 see them: readdir(3) fails at a position that their `off_t` does not hold.
#[test]
fn positions_in_listings_have_31_bits() {
    let kinds = ["large_dir", "casefold,inline_data", "^dir_index"];
    for (features, count) in kinds.into_iter().flat_map(|features| [(features, 1), (features, 250)]) {
        let options = [&WITH_EQUAL_HASHES[..], &["-O", features]].concat();
        let Some(fuse) = FuseMount::mounted(&options, "rw") else { return };
        let dir = fuse.path("dir");
        std::fs::create_dir(&dir).unwrap();
        if features.contains("casefold") && tool(Command::new("chattr").arg("+F").arg(&dir)).is_none() {
            return;
        }
        for number in PAIRS.concat().into_iter().take(if count == 1 { 0 } else { 6 }).chain(0..count) {
            std::fs::write(dir.join(format!("f{number}")), "").unwrap();
        }
        let list = |more: &[&str]| {
            let mut python = Command::new("python3");
            python.args(["-c", include_str!("dirs.py")]).arg(&dir).args(more);
            fuse.watched(|| tool(&mut python))
        };
        // The second time, the kernel has the listing in its cache.
        for _ in 0..2 {
            let Some(in_table) = list(&[]) else { return };
            let expected = if features == "^dir_index" || count == 1 { 0 } else { PAIRS.len() };
            assert_eq!(in_table.trim(), expected.to_string(), "{features}, {count} names");
        }
        list(&["remove"]);
        assert!(!dir.exists(), "{features}");
        fuse.finish();
    }
}
