//! Random operations on a small tree, around the sizes at which contents leave their inodes.

use std::array::from_fn;
use std::sync::LazyLock;

use parext4::XattrMode;
use testkit::choices::Choices as _;
use testkit::ops::op::parent;
use testkit::ops::tree::Kind;
use testkit::ops::{Content, FileOp, Op, Tree, Way};
use testkit::rng::Rng;

const TOP: [&str; 4] = ["/top0", "/top1", "/top2", "/top3"];
/// Names that directories are renamed to.
const MOVED: [&str; 3] = ["/moved0", "/moved1", "/moved2"];
const DIRECTORIES: [&str; 4] = ["/a", "/b", "/a/c", "/b/d"];
/// By directory and number, a short and a long name. They are enough for a directory to leave its
/// inode.
static NAMES: LazyLock<[[[String; 2]; 14]; 4]> = LazyLock::new(|| {
    DIRECTORIES
        .map(|dir| from_fn(|number| ["", "-with-a-longer-name"].map(|end| format!("{dir}/n{number}{end}"))))
});

const LONGEST_TARGET: u64 = 900;
static TARGET: LazyLock<String> =
    LazyLock::new(|| ('a'..='z').cycle().take(26 + usize::try_from(LONGEST_TARGET).unwrap()).collect());

/// The implementation that runs an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Parext4,
    /// Linux 6.18 loses data that is written to a file whose size was set past its contents in the
    /// inode.
    Kernel,
}

/// Returns an operation that succeeds, what it writes, and the tree after it. `room` is the number
/// of bytes that an inode has room for.
pub fn random_op(rng: &mut Rng, tree: &Tree, room: u64, side: Side) -> (Op, Content, Tree) {
    loop {
        let content = Content::Pattern(rng.below(200));
        let op = choose(rng, tree, room).filter(|op| side == Side::Parext4 || !grows(tree, op));
        if let Some((op, next)) = op.and_then(|op| Some((op, tree.after(&op, content)?))) {
            return (op, content, next);
        }
    }
}

fn grows(tree: &Tree, op: &Op) -> bool {
    let len = |path| tree.bytes(path).map_or(0, <[u8]>::len) as u64;
    matches!(*op, Op::File(path, FileOp::SetLen { size }) if size > len(path))
}

/// Returns an operation that may be impossible.
fn choose(rng: &mut Rng, tree: &Tree, room: u64) -> Option<Op> {
    let path = name(rng);
    let above = parent(path);
    if !above.is_empty() && !tree.names.contains_key(above) {
        return Some(Op::MakeDir(above));
    }
    match tree.names.get(path).map(|entry| &entry.kind) {
        None => Some(match rng.below(8) {
            0 => Op::MakeDir(path),
            1 => Op::Symlink(path, target(rng, room)),
            _ => Op::Create(path),
        }),
        Some(Kind::Symlink { .. }) => rng.chance(30).then_some(Op::Unlink(path)),
        Some(Kind::Directory) => match rng.below(3) {
            0 => Some(Op::RemoveDir(path)),
            1 => Some(Op::Rename(path, rng.pick::<&str>(&MOVED))),
            _ => None,
        },
        Some(Kind::File(key)) => Some(on_file(rng, path, tree.files[*key].size(), room)),
    }
}

/// Returns an operation on a file of `size` bytes.
fn on_file(rng: &mut Rng, path: &'static str, size: u64, room: u64) -> Op {
    let near = |rng: &mut Rng| match rng.below(4) {
        0 => rng.below(70),
        1 => (room + rng.below(9)).saturating_sub(4),
        2 => rng.below(room + 1),
        _ => rng.below(3 * room),
    };
    let way = Way::Buffered;
    let op = match rng.below(16) {
        0..4 => {
            let offset = rng.below(size.max(room) + 1);
            FileOp::Write { way, offset, len: 1 + near(rng).saturating_sub(offset) }
        }
        4..7 => {
            let most = if rng.chance(80) { 40 } else { room };
            FileOp::Append { way, len: 1 + rng.below(most) }
        }
        7..10 => FileOp::SetLen { size: near(rng) },
        10..12 => {
            // The attribute needs the space of contents.
            let most = if rng.chance(70) { 30 } else { room.min(600) };
            let len = usize::try_from(rng.below(most)).unwrap();
            return Op::SetXattr { path, name: "user.note", len, mode: XattrMode::Any };
        }
        12..14 => return Op::Rename(path, name(rng)),
        _ => return Op::Unlink(path),
    };
    Op::File(path, op)
}

/// Returns a path. The first directory is twice as likely as another one.
fn name(rng: &mut Rng) -> &'static str {
    match rng.below(6) {
        0 => rng.pick::<&str>(&TOP),
        nth => {
            let names = &NAMES[usize::try_from(nth - 1).unwrap() % NAMES.len()];
            &rng.pick(names)[usize::from(rng.chance(25))]
        }
    }
}

fn target(rng: &mut Rng, room: u64) -> &'static str {
    let len = 1 + rng.below((room + 40).min(LONGEST_TARGET));
    let [first, len] = [rng.below(26), len].map(|number| usize::try_from(number).unwrap());
    &TARGET[first..first + len]
}
