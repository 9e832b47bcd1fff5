//! Large directories, listed while they change.

use std::collections::BTreeSet;
use std::path::Path;

use testkit::fuse_mount::FuseMount;

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
