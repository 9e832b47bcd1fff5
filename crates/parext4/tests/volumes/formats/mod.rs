//! The kinds of images that mke2fs makes, alone and combined: what the kernel writes is read equal
//! here and vice versa, and e2fsck finds no error after changes.
//!
//! `cargo xtask formats` runs them for longer. `PAREXT4_KIND` selects kinds by a part of their
//! names, `PAREXT4_STRESS_ALL=1` all.

mod change;
mod features;
mod hostile;
mod large_blocks;
mod snapshot;

use image_kinds::Kind;
use parext4::{Error, Volume};
use testkit::volume::assert_no_findings;
use testkit::{Image, kinds, settings};

use change::{Changes, populate};
use snapshot::{Detail, Snapshot, of_directory, of_volume};

/// Kinds that a test run tries.
const SAMPLE: usize = 24;

/// The volumes are populated by the kernel, or by mke2fs where the kernel cannot mount them, and
/// changed here.
#[test]
fn all_kinds_are_read_and_written_as_by_the_kernel() {
    let Some(plain) = Image::mke2fs(8, &[]) else { return };
    if plain.with_kernel_options("", |_| ()).is_none() {
        return;
    }
    let seed = settings::seed("formats");
    kinds::for_each(kinds::sample(seed, SAMPLE, |_| true), seed, |kind, seed| match kind.kernel {
        Some(options) => beside_the_kernel(kind, options, seed),
        None => beside_e2fsprogs(kind, seed),
    });
}

/// Makes an image, or returns `None` if mke2fs refuses a combination of features.
fn make(kind: &Kind, tree: Option<&std::path::Path>) -> Option<Image> {
    kinds::accepted(kind, Image::of_kind(kind, tree).expect("mke2fs is installed"))
}

fn beside_the_kernel(kind: &Kind, options: &str, seed: u64) {
    let Some(image) = make(kind, None) else { return };
    image.fsck();
    let mounted = |look: &dyn Fn(&std::path::Path)| {
        image.with_kernel_options(options, look).expect("the kernel mounts the image");
        image.fsck();
    };
    let by_kernel =
        || image.with_kernel_options(options, |root| of_directory(root, Detail::All)).expect("mounted");
    mounted(&|root| {
        populate(root);
        if kind.name == "encrypt" {
            testkit::encrypted::make(root, 40);
        }
    });
    image.convert(kind);
    let (changes, ours) = change(&image, kind, &by_kernel(), Detail::All, seed);
    assert_same(&by_kernel(), &ours);
    mounted(&|root| {
        std::fs::remove_dir_all(root.join("many")).unwrap();
        std::fs::write(root.join("by the kernel"), vec![7; 100_000]).unwrap();
    });
    let opened = image.open();
    assert!(matches!(opened.metadata("/many"), Err(Error::NotFound(_))));
    assert_eq!(opened.read("/by the kernel").unwrap(), vec![7; 100_000]);
    changes.check(&opened);
    opened.close().unwrap();
}

fn beside_e2fsprogs(kind: &Kind, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let (tree, dumped) = (dir.path().join("tree"), dir.path().join("dumped"));
    std::fs::create_dir_all(tree.join("lost+found")).unwrap();
    populate(&tree);
    let Some(image) = make(kind, Some(&tree)) else { return };
    image.fsck();
    let made = of_directory(&tree, Detail::Contents);
    let (changes, ours) = change(&image, kind, &made, Detail::Contents, seed);
    // debugfs dumps at least 60 bytes of contents in an inode.
    if !kind.mke2fs.contains("inline_data") {
        std::fs::create_dir(&dumped).unwrap();
        image.debugfs(&format!("rdump / {}", dumped.display()));
        assert_same(&of_directory(&dumped, Detail::Contents), &ours);
    }
    image.debugfs_write(&format!("write {} written", tree.join("dir/large").display()));
    // debugfs does not count in quota files.
    if !kind.mke2fs.contains("quota") {
        image.fsck();
    }
    let opened = image.open();
    assert_eq!(opened.read("/written").unwrap(), vec![3; 700_001]);
    changes.check(&opened);
    opened.close().unwrap();
}

/// Checks that the volume is read equal, changes it, and returns what it then is.
fn change(image: &Image, kind: &Kind, before: &Snapshot, detail: Detail, seed: u64) -> (Changes, Snapshot) {
    let opened = image.open();
    assert_same(before, &of_volume(&opened, detail));
    let mut changes = Changes::new(seed, kind.gets_extents());
    changes.make(&opened);
    let ours = of_volume(&opened, detail);
    close(opened);
    image.fsck();
    assert_no_findings(&image.load(), &kind.name);
    (changes, ours)
}

fn close(volume: Volume) {
    volume.close().unwrap();
}

/// Asserts that two snapshots are the same, and shows only the differences.
fn assert_same(theirs: &Snapshot, ours: &Snapshot) {
    let differ = |path: &&String| theirs.get(*path) != ours.get(*path);
    let different: Vec<_> = theirs.keys().chain(ours.keys()).filter(differ).take(5).collect();
    let show =
        |path: &&String| format!("{path}:\n  theirs {:?}\n  ours   {:?}", theirs.get(*path), ours.get(*path));
    assert!(different.is_empty(), "{}", different.iter().map(show).collect::<Vec<_>>().join("\n"));
}
