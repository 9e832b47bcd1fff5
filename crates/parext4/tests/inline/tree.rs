//! A model of a small tree, and random changes of it around the sizes at which contents leave their
//! inodes.

use std::collections::BTreeMap;

use testkit::rng::Rng;

/// Names and what they are, by path.
pub type Tree = BTreeMap<String, Item>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    File { contents: Vec<u8>, note: Option<Vec<u8>> },
    Directory,
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
pub enum Change {
    Create(String),
    Write {
        path: String,
        offset: usize,
        data: Vec<u8>,
    },
    Append {
        path: String,
        data: Vec<u8>,
    },
    SetLen {
        path: String,
        len: usize,
    },
    MakeDirectory(String),
    Link {
        path: String,
        target: Vec<u8>,
    },
    /// Removes a file, a link or an empty directory.
    Remove(String),
    Rename {
        from: String,
        to: String,
    },
    /// Sets the attribute `user.note` of a file, which needs the space of contents.
    Note {
        path: String,
        note: Vec<u8>,
    },
}

const DIRECTORIES: [&str; 4] = ["/a", "/b", "/a/c", "/b/d"];

/// The implementation that makes a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Parext4,
    /// Linux 6.18 loses data that is written to a file whose size was set past its contents in the
    /// inode.
    Kernel,
}

/// Returns a change that succeeds. `room` is the number of bytes that an inode has room for.
pub fn random_change(rng: &mut Rng, tree: &Tree, room: u64, side: Side) -> Change {
    loop {
        match choose(rng, tree, room) {
            Some(Change::SetLen { path, len }) if side == Side::Kernel && grows(tree, &path, len) => {}
            Some(change) => return change,
            None => {}
        }
    }
}

fn grows(tree: &Tree, path: &str, len: usize) -> bool {
    matches!(tree.get(path), Some(Item::File { contents, .. }) if len > contents.len())
}

fn choose(rng: &mut Rng, tree: &Tree, room: u64) -> Option<Change> {
    let path = name(rng);
    let data = |rng: &mut Rng, len: u64| {
        let first = rng.below(200);
        (0..len).map(|at| u8::try_from(1 + (first + at * 7) % 250).unwrap()).collect::<Vec<u8>>()
    };
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    if !parent.is_empty() && tree.get(parent) != Some(&Item::Directory) {
        let above = parent.rsplit_once('/').map_or("", |(above, _)| above);
        let exists = tree.contains_key(parent) || !above.is_empty() && !tree.contains_key(above);
        return (!exists).then(|| Change::MakeDirectory(parent.to_owned()));
    }
    match tree.get(&path) {
        None => Some(match rng.below(8) {
            0 => Change::MakeDirectory(path),
            1 => {
                let len = 1 + rng.below(room + 40).min(900);
                Change::Link { path, target: data(rng, len).iter().map(|byte| b'a' + byte % 26).collect() }
            }
            _ => Change::Create(path),
        }),
        Some(Item::Link(_)) if rng.chance(30) => Some(Change::Remove(path)),
        Some(Item::Link(_)) => None,
        Some(Item::Directory) => {
            let below = format!("{path}/");
            let is_empty = !tree.keys().any(|other| other.starts_with(&below));
            let to = format!("/moved{}", rng.below(3));
            match rng.below(3) {
                0 if is_empty => Some(Change::Remove(path)),
                1 if !tree.contains_key(&to) => Some(Change::Rename { from: path, to }),
                _ => None,
            }
        }
        Some(Item::File { contents, .. }) => {
            let size = contents.len() as u64;
            let near = |rng: &mut Rng| match rng.below(4) {
                0 => rng.below(70),
                1 => (room + rng.below(9)).saturating_sub(4),
                2 => rng.below(room + 1),
                _ => rng.below(3 * room),
            };
            Some(match rng.below(16) {
                0..4 => {
                    let offset = rng.below(size.max(room) + 1);
                    let len = 1 + near(rng).saturating_sub(offset);
                    Change::Write { path, offset: usize::try_from(offset).unwrap(), data: data(rng, len) }
                }
                4..7 => {
                    let most = if rng.chance(80) { 40 } else { room };
                    let len = 1 + rng.below(most);
                    Change::Append { path, data: data(rng, len) }
                }
                7..10 => Change::SetLen { path, len: usize::try_from(near(rng)).unwrap() },
                10..12 => {
                    let most = if rng.chance(70) { 30 } else { room.min(600) };
                    let len = rng.below(most);
                    Change::Note { path, note: data(rng, len) }
                }
                12..14 => {
                    let to = name(rng);
                    let above = to.rsplit_once('/').map_or("", |(above, _)| above);
                    let possible = above.is_empty() || tree.get(above) == Some(&Item::Directory);
                    let replaces = matches!(tree.get(&to), None | Some(Item::File { .. }));
                    return (possible && replaces && to != path).then_some(Change::Rename { from: path, to });
                }
                _ => Change::Remove(path),
            })
        }
    }
}

/// Returns a path; directories get enough entries to leave their inodes.
fn name(rng: &mut Rng) -> String {
    let short = rng.below(14);
    let long = if rng.chance(25) { "-with-a-longer-name" } else { "" };
    match rng.below(6) {
        0 => format!("/top{}", rng.below(4)),
        n => format!("{}/n{short}{long}", DIRECTORIES[usize::try_from(n - 1).unwrap() % 4]),
    }
}

/// Applies a change to the model.
pub fn apply(tree: &mut Tree, change: &Change) {
    let contents = |tree: &mut Tree, path: &str, edit: &mut dyn FnMut(&mut Vec<u8>)| match tree.get_mut(path)
    {
        Some(Item::File { contents, .. }) => edit(contents),
        other => panic!("{path} is {other:?}"),
    };
    match change {
        Change::Create(path) => {
            tree.insert(path.clone(), Item::File { contents: Vec::new(), note: None });
        }
        Change::Write { path, offset, data } => contents(tree, path, &mut |contents| {
            contents.resize(contents.len().max(offset + data.len()), 0);
            contents[*offset..offset + data.len()].copy_from_slice(data);
        }),
        Change::Append { path, data } => contents(tree, path, &mut |contents| contents.extend(data)),
        Change::SetLen { path, len } => contents(tree, path, &mut |contents| contents.resize(*len, 0)),
        Change::MakeDirectory(path) => drop(tree.insert(path.clone(), Item::Directory)),
        Change::Link { path, target } => drop(tree.insert(path.clone(), Item::Link(target.clone()))),
        Change::Remove(path) => drop(tree.remove(path)),
        Change::Rename { from, to } => {
            let below = format!("{from}/");
            let moved: Vec<String> =
                tree.keys().filter(|path| *path == from || path.starts_with(&below)).cloned().collect();
            for path in moved {
                let item = tree.remove(&path).unwrap();
                tree.insert(format!("{to}{}", &path[from.len()..]), item);
            }
        }
        Change::Note { path, note } => match tree.get_mut(path) {
            Some(Item::File { note: old, .. }) => *old = Some(note.clone()),
            other => panic!("{path} is {other:?}"),
        },
    }
}
