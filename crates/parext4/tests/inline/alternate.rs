//! The kernel and parext4 change one volume in turn. Each reads what the other has left, and e2fsck
//! checks it.

use testkit::rng::Rng;
use testkit::{Image, settings};

use super::tree::{Change, Side, Tree, apply, random_change};
use super::{KINDS, room, sides};

const CHANGES: usize = 250;
const ROUNDS: usize = 2;

/// Compares trees, naming the first difference only.
fn compare(found: &Tree, expected: &Tree, what: &str) {
    for (path, item) in expected {
        assert_eq!(found.get(path), Some(item), "{what}: {path}");
    }
    assert!(found.len() == expected.len(), "{what}: {:?}", found.keys().collect::<Vec<_>>());
}

fn changes(rng: &mut Rng, tree: &mut Tree, room: u64, side: Side) -> Vec<Change> {
    let mut list = Vec::new();
    for _ in 0..CHANGES {
        let change = random_change(rng, tree, room, side);
        apply(tree, &change);
        list.push(change);
    }
    list
}

#[test]
fn each_reads_what_the_other_wrote() {
    let seed = settings::seed("inline: alternate");
    for (stream, &(inode_size, kind)) in (0..).zip(KINDS) {
        let Some(image) = Image::mke2fs(16, kind) else { return };
        let mut rng = Rng::new(seed, stream);
        let (mut tree, mut mounted, room) = (Tree::new(), true, room(inode_size));
        for round in 0..ROUNDS {
            let what = format!("{kind:?}, round {round}");
            let volume = image.open();
            compare(&sides::read(&volume), &tree, &format!("{what}, read by parext4"));
            for change in changes(&mut rng, &mut tree, room, Side::Parext4) {
                sides::change(&volume, &change).unwrap_or_else(|error| panic!("{what}: {change:?}: {error}"));
            }
            compare(&sides::read(&volume), &tree, &format!("{what}, changed by parext4"));
            volume.close().unwrap();
            image.fsck();
            let ours = tree.clone();
            let list = changes(&mut rng, &mut tree, room, Side::Kernel);
            mounted = false;
            image.with_kernel(|root| {
                mounted = true;
                compare(&sides::read_by_kernel(root), &ours, &format!("{what}, read by the kernel"));
                for change in &list {
                    sides::change_by_kernel(root, change)
                        .unwrap_or_else(|error| panic!("{what}: the kernel: {change:?}: {error}"));
                }
            });
            if !mounted {
                break;
            }
            image.fsck();
            image.with_kernel(|root| {
                compare(&sides::read_by_kernel(root), &tree, &format!("{what}, read again by the kernel"));
            });
        }
        if mounted {
            let volume = image.open();
            compare(&sides::read(&volume), &tree, &format!("{kind:?}, at the end"));
            volume.close().unwrap();
        }
    }
}
