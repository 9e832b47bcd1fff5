//! The kernel and parext4 change one volume in turn. Each reads what the other has left, and e2fsck
//! checks it.

use parext4::Volume;
use testkit::ops::{Content, KernelTree, Op, Runner, Tree, read_tree};
use testkit::rng::Rng;
use testkit::{Image, settings};

use super::tree::{Side, random_op};
use super::{KINDS, room};

const CHANGES: usize = 250;
const ROUNDS: usize = 2;

/// Compares the tree that parext4 has, also as it reads it through the page cache.
fn compare(volume: &Volume, expected: &Tree, what: &str) {
    let files = expected.names.keys().filter_map(|path| Some((path, expected.bytes(path)?)));
    for (path, bytes) in files {
        assert!(volume.read(path).is_ok_and(|read| read == bytes), "{what}: {path} has other contents");
    }
    check(read_tree(volume, ""), expected, what);
}

/// Compares a tree that was read.
fn check(found: Result<Tree, String>, expected: &Tree, what: &str) {
    let same = found.and_then(|found| expected.compare(&found));
    same.unwrap_or_else(|difference| panic!("{what}: {difference}"));
}

/// Returns operations that succeed in turn, and has `tree` follow them.
fn changes(rng: &mut Rng, tree: &mut Tree, room: u64, side: Side) -> Vec<(Op, Content)> {
    let mut change = |_| {
        let (op, content, next) = random_op(rng, tree, room, side);
        *tree = next;
        (op, content)
    };
    (0..CHANGES).map(&mut change).collect()
}

#[test]
fn each_reads_what_the_other_wrote() {
    let seed = settings::seed("inline: alternate");
    for (stream, &(inode_size, kind)) in (0..).zip(KINDS) {
        let Some(image) = Image::mke2fs(16, kind) else { return };
        let mut rng = Rng::new(seed, stream);
        let (mut tree, mut mounted, room) = (Tree::default(), true, room(inode_size));
        for round in 0..ROUNDS {
            let what = format!("{kind:?}, round {round}");
            let volume = image.open();
            compare(&volume, &tree, &format!("{what}, read by parext4"));
            let mut runner = Runner::new(&volume);
            for (op, content) in changes(&mut rng, &mut tree, room, Side::Parext4) {
                runner.run(&op, content).unwrap_or_else(|error| panic!("{what}: {op:?}: {error}"));
            }
            drop(runner);
            compare(&volume, &tree, &format!("{what}, changed by parext4"));
            volume.close().unwrap();
            image.fsck();
            let ours = tree.clone();
            let list = changes(&mut rng, &mut tree, room, Side::Kernel);
            mounted = false;
            image.with_kernel(|root| {
                mounted = true;
                let mut kernel = KernelTree::new(root);
                check(kernel.read(), &ours, &format!("{what}, read by the kernel"));
                for (op, content) in &list {
                    kernel
                        .run(op, *content)
                        .unwrap_or_else(|error| panic!("{what}: the kernel: {op:?}: {error}"));
                }
            });
            if !mounted {
                break;
            }
            image.fsck();
            image.with_kernel(|root| {
                check(KernelTree::new(root).read(), &tree, &format!("{what}, read again by the kernel"));
            });
        }
        if mounted {
            let volume = image.open();
            compare(&volume, &tree, &format!("{kind:?}, at the end"));
            volume.close().unwrap();
        }
    }
}
