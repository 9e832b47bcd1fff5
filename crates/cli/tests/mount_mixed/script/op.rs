//! Operations on few files through few handles, and their random choice.

use std::collections::{HashMap, HashSet};

use rustix::fs::IFlags;
use testkit::rng::Rng;

use crate::engines::Kind as EngineKind;
use crate::users::{USERS, User};

/// Files, handles, and the longest file in bytes.
pub const FILES: usize = 3;
pub const SLOTS: usize = 6;
pub const MOST: u64 = 256 << 10;

pub const PAGE: u64 = 4096;
const SECTOR: u64 = 512;
/// Limit of transfers in flight.
const DEPTH: usize = 8;

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    pub reads: bool,
    pub writes: bool,
    pub direct: bool,
    pub append: bool,
    pub truncate: bool,
    pub sync: bool,
}

/// The kinds of fallocate(2).
#[derive(Clone, Copy, Debug)]
pub enum Allocation {
    Plain,
    KeepSize,
    Punch,
    Zero,
    ZeroKeepSize,
}

/// An operation. `slot` is a handle, `file` a name; offsets and lengths are in bytes.
#[derive(Clone, Debug)]
pub enum Op {
    Open {
        slot: usize,
        file: usize,
        flags: Flags,
    },
    Close {
        slot: usize,
    },
    Read {
        slot: usize,
        offset: u64,
        len: u64,
    },
    Write {
        slot: usize,
        offset: u64,
        len: u64,
    },
    Submit {
        slot: usize,
        engine: EngineKind,
        writes: bool,
        offset: u64,
        len: u64,
    },
    /// Waits for all transfers in flight.
    Reap,
    Map {
        slot: usize,
        len: u64,
        writable: bool,
    },
    Unmap {
        slot: usize,
    },
    MapRead {
        slot: usize,
        offset: u64,
        len: u64,
    },
    MapWrite {
        slot: usize,
        offset: u64,
        len: u64,
    },
    MapSync {
        slot: usize,
    },
    SeekData {
        slot: usize,
        offset: u64,
    },
    SeekHole {
        slot: usize,
        offset: u64,
    },
    Allocate {
        slot: usize,
        what: Allocation,
        offset: u64,
        len: u64,
    },
    SetLen {
        slot: usize,
        size: u64,
    },
    SetLenByName {
        file: usize,
        size: u64,
    },
    Copy {
        from: usize,
        from_offset: u64,
        to: usize,
        to_offset: u64,
        len: u64,
    },
    SetFlags {
        slot: usize,
        flags: IFlags,
    },
    Flags {
        slot: usize,
    },
    SetAttribute {
        file: usize,
        name: &'static str,
        len: usize,
    },
    Attribute {
        file: usize,
        name: &'static str,
    },
    Attributes {
        file: usize,
    },
    RemoveAttribute {
        file: usize,
        name: &'static str,
    },
    /// Sets an access control list: the permissions of the group, of one more user, and the mask.
    SetAcl {
        file: usize,
        group: u16,
        other_user: u16,
        mask: u16,
    },
    SetMode {
        file: usize,
        mode: u32,
    },
    SetOwner {
        file: usize,
        owner: User,
    },
    Sync {
        slot: usize,
        data_only: bool,
    },
    SyncVolume {
        slot: usize,
    },
    Forget {
        slot: usize,
        offset: u64,
        len: u64,
    },
    /// Gives the file another name, and removes that name.
    LinkAndUnlink {
        file: usize,
    },
    /// Renames the file and renames it back.
    Rename {
        file: usize,
    },
    /// Renames a new file over the file, or exchanges both and removes the old one; handles keep
    /// the old one.
    RenameOver {
        file: usize,
        exchange: bool,
    },
    /// Removes the file and creates it again; handles keep the old one.
    Replace {
        file: usize,
    },
}

/// An operation and the user that does it.
#[derive(Clone, Debug)]
pub struct Step {
    pub user: User,
    pub op: Op,
}

/// The state on which the choices depend.
#[derive(Default)]
pub struct View {
    /// By name.
    pub sizes: [u64; FILES],
    pub slots: [Option<Slot>; SLOTS],
    pub under_way: Vec<Range>,
    /// Number of files ever created, which tells the files of handles apart.
    pub made: [u64; FILES],
    /// Whether one of the sides has write-back caching in the kernel.
    pub writes_back: bool,
    /// By file: the number of the file that has the name.
    pub flags: HashMap<(usize, u64), IFlags>,
    /// By file: the pages that were changed through a mapping.
    pub mapped: HashMap<(usize, u64), HashSet<u64>>,
}

impl View {
    /// Returns the inode flags of the file that a step uses.
    pub fn flags_for(&self, op: &Op) -> IFlags {
        let key = match *op {
            Op::Open { file, .. }
            | Op::SetLenByName { file, .. }
            | Op::SetAttribute { file, .. }
            | Op::Attribute { file, .. }
            | Op::Attributes { file }
            | Op::RemoveAttribute { file, .. }
            | Op::SetAcl { file, .. }
            | Op::SetMode { file, .. }
            | Op::SetOwner { file, .. }
            | Op::LinkAndUnlink { file }
            | Op::Rename { file }
            | Op::RenameOver { file, .. }
            | Op::Replace { file } => Some((file, self.made[file])),
            Op::Write { slot, .. }
            | Op::Submit { slot, .. }
            | Op::Map { slot, .. }
            | Op::MapWrite { slot, .. }
            | Op::Allocate { slot, .. }
            | Op::SetLen { slot, .. }
            | Op::SetFlags { slot, .. }
            | Op::Copy { to: slot, .. } => self.slots[slot].map(|open| (open.file, open.made)),
            _ => None,
        };
        key.and_then(|key| self.flags.get(&key)).copied().unwrap_or(IFlags::empty())
    }
}

/// A handle.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub file: usize,
    /// The number of the file.
    pub made: u64,
    pub flags: Flags,
    /// The length of its mapping, and whether the mapping is writable.
    pub map: Option<(u64, bool)>,
}

/// Pages that a transfer in flight reads or writes.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub file: usize,
    pub made: u64,
    pub start: u64,
    pub end: u64,
}

/// Chooses steps.
pub struct Chooser {
    rng: Rng,
}

impl Chooser {
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed, 0) }
    }

    /// Returns a step whose result does not depend on the progress of the transfers in flight.
    pub fn next(&mut self, view: &View) -> Step {
        if view.under_way.len() == DEPTH || !view.under_way.is_empty() && self.rng.chance(20) {
            return Step { user: User::Root, op: Op::Reap };
        }
        loop {
            let op = self.choose(view).filter(|op| is_settled(op, view));
            let op = op.filter(|op| !is_before_flags(op, view));
            if let Some(op) = op.filter(|op| {
                is_open_for(op, view) || self.rng.chance(5) && !matches!(op, Op::Copy { .. } | Op::Map { .. })
            }) {
                return Step { user: self.user(&op), op };
            }
        }
    }

    /// Returns true if the files should be compared as a whole now.
    pub fn reads_files(&mut self) -> bool {
        self.rng.chance(2)
    }

    /// Returns true if the volumes should be mounted again now.
    pub fn mounts_again(&mut self) -> bool {
        self.rng.below(700) == 0
    }

    fn user(&mut self, op: &Op) -> User {
        let usual = if self.rng.chance(60) { User::Owner } else { USERS[self.below(USERS.len())] };
        match op {
            Op::SetFlags { .. } | Op::SetOwner { .. } if self.rng.chance(70) => User::Root,
            // A server reads the groups of the thread that sent a request, which may act as another
            // user by then. The set-group-ID bit is then cleared although a member of the group may
            // keep it.
            Op::Submit { .. } if usual == User::Friend => User::Owner,
            _ => usual,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.rng.below(limit as u64)).unwrap()
    }

    fn choose(&mut self, view: &View) -> Option<Op> {
        let (slot, file) = (self.below(SLOTS), self.below(FILES));
        let Some(open) = view.slots[slot] else {
            return Some(Op::Open { slot, file, flags: self.flags() });
        };
        if open.map.is_some() && self.rng.chance(20) {
            return self.mapped(slot, open, view);
        }
        let size = view.sizes[open.file];
        let (offset, len) = self.range(open.flags.direct, size);
        Some(match self.rng.below(1000) {
            0..40 => Op::Close { slot },
            40..240 => Op::Read { slot, offset, len },
            240..400 => Op::Write { slot, offset, len },
            400..540 => {
                let engine = if self.rng.chance(50) { EngineKind::Aio } else { EngineKind::Ring };
                Op::Submit { slot, engine, writes: self.rng.chance(60), offset, len }
            }
            540..590 => {
                let len = 1 + self.rng.below(MOST);
                Op::Map { slot, len, writable: self.rng.chance(70) }
            }
            590..620 => Op::SeekData { slot, offset },
            620..650 => Op::SeekHole { slot, offset },
            650..710 => Op::Allocate { slot, what: self.allocation(), offset, len },
            710..735 => Op::SetLen { slot, size: self.place(size) },
            735..745 => Op::SetLenByName { file, size: self.place(view.sizes[file]) },
            745..790 => {
                let to = self.below(SLOTS);
                Op::Copy { from: slot, from_offset: offset, to, to_offset: self.place(size), len }
            }
            790..810 => {
                let flags = self.inode_flags();
                // With write-back caching, the kernel refuses these writes too late.
                let late =
                    if view.writes_back { IFlags::IMMUTABLE | IFlags::APPEND } else { IFlags::empty() };
                Op::SetFlags { slot, flags: flags - late }
            }
            810..820 => Op::Flags { slot },
            820..835 => Op::SetAttribute { file, name: self.attribute(), len: self.below(600) },
            835..850 => Op::Attribute { file, name: self.attribute() },
            850..855 => Op::Attributes { file },
            855..865 => Op::RemoveAttribute { file, name: self.attribute() },
            865..875 => {
                let mut bits = || u16::try_from(self.rng.below(8)).unwrap();
                Op::SetAcl { file, group: bits(), other_user: bits(), mask: bits() }
            }
            875..895 => Op::SetMode { file, mode: self.mode() },
            895..905 => Op::SetOwner { file, owner: USERS[self.below(USERS.len())] },
            905..940 => Op::Sync { slot, data_only: self.rng.chance(50) },
            940..945 => Op::SyncVolume { slot },
            945..985 => Op::Forget { slot, offset, len },
            985..990 => Op::LinkAndUnlink { file },
            990..995 => Op::Rename { file },
            995..997 => Op::RenameOver { file, exchange: self.rng.chance(50) },
            _ => Op::Replace { file },
        })
    }

    fn mapped(&mut self, slot: usize, open: Slot, view: &View) -> Option<Op> {
        let (most, writable) = open.map?;
        let size = view.sizes[open.file];
        // Sometimes past the end of the file.
        let most = if self.rng.chance(95) { most.min(size) } else { most };
        let offset = self.rng.below(most.max(1));
        let len = self.rng.log_uniform(32 << 10).min(most.saturating_sub(offset));
        Some(match self.rng.below(100) {
            0..10 => Op::Unmap { slot },
            10..20 => Op::MapSync { slot },
            _ if len == 0 => return None,
            // The size of a file that was replaced is not known.
            20..60 if writable && open.made != view.made[open.file] => return None,
            20..60 if writable && reaches_rest_of_page(offset, len, size) => return None,
            20..60 if writable => Op::MapWrite { slot, offset, len },
            _ => Op::MapRead { slot, offset, len },
        })
    }

    fn flags(&mut self) -> Flags {
        let (reads, writes) = match self.rng.below(10) {
            0..2 => (true, false),
            2 => (false, true),
            _ => (true, true),
        };
        let direct = self.rng.chance(40);
        // Only the kernel's ext4 refuses direct appends to a file that does not end at a sector.
        let append = writes && !direct && self.rng.chance(20);
        let truncate = writes && self.rng.chance(3);
        Flags { reads, writes, direct, append, truncate, sync: self.rng.chance(5) }
    }

    /// Returns an offset, mostly within the file, and a length.
    fn range(&mut self, direct: bool, size: u64) -> (u64, u64) {
        let (offset, len) = (self.place(size), self.rng.log_uniform(64 << 10));
        let unit = match self.rng.below(100) {
            0..40 => PAGE,
            // Direct transfers are of whole sectors. The kernel's ext4 reads unaligned ranges from
            // holes, and a mount accepts unaligned ranges that reach the end of the file.
            40..80 if !direct => 1,
            _ => SECTOR,
        };
        (offset / unit * unit, len.next_multiple_of(unit))
    }

    fn place(&mut self, size: u64) -> u64 {
        let most = if self.rng.chance(80) { size } else { MOST };
        let place = self.rng.below(most.max(1) + 1);
        if self.rng.chance(50) { place / PAGE * PAGE } else { place }
    }

    fn allocation(&mut self) -> Allocation {
        use Allocation::{KeepSize, Plain, Punch, Zero, ZeroKeepSize};
        [Plain, KeepSize, Punch, Punch, Zero, ZeroKeepSize][self.below(6)]
    }

    fn inode_flags(&mut self) -> IFlags {
        let mut flags = IFlags::empty();
        for (flag, percent) in [
            (IFlags::IMMUTABLE, 10),
            (IFlags::APPEND, 15),
            (IFlags::NODUMP, 30),
            (IFlags::NOATIME, 30),
            (IFlags::SYNC, 10),
        ] {
            flags.set(flag, self.rng.chance(percent));
        }
        flags
    }

    fn attribute(&mut self) -> &'static str {
        ["user.first", "user.second", "trusted.first", "security.first", "other.first"][self.below(5)]
    }

    /// Includes bits that a write by another user clears.
    fn mode(&mut self) -> u32 {
        let set_ids = [0, 0o4000, 0o2000, 0o6000, 0o1000][self.below(5)];
        let permissions = [0o666, 0o777, 0o755, 0o644, 0o660, 0o767][self.below(6)];
        set_ids | permissions
    }
}

/// Returns true if a range includes bytes past the end of a file of `size` bytes, in its last page.
/// How long a store stays there, and whether it becomes part of a file that grows, differs.
fn reaches_rest_of_page(offset: u64, len: u64, size: u64) -> bool {
    offset < size.next_multiple_of(PAGE) && size < offset + len
}

/// Returns true if a step stores to a mapping of a file that is immutable now. The kernel's ext4
/// refuses that; FUSE does not know of it.
fn is_before_flags(op: &Op, view: &View) -> bool {
    matches!(op, Op::MapWrite { .. }) && view.flags_for(op).contains(IFlags::IMMUTABLE)
}

/// Returns true if the handle's mode permits the step. Otherwise its result is `EBADF`.
fn is_open_for(op: &Op, view: &View) -> bool {
    let flags = |slot: usize| view.slots[slot].map(|slot| slot.flags);
    let reads = |slot: usize| flags(slot).is_some_and(|flags| flags.reads);
    let writes = |slot: usize| flags(slot).is_some_and(|flags| flags.writes);
    match *op {
        Op::Read { slot, .. } => reads(slot),
        Op::Submit { slot, writes: false, .. } => reads(slot),
        Op::Write { slot, .. } | Op::Submit { slot, .. } => writes(slot),
        Op::Allocate { slot, .. } | Op::SetLen { slot, .. } => writes(slot),
        // The kernel refuses to map an append-only file by a writable handle; through FUSE it does
        // not know the flag.
        Op::Map { slot, writable, .. } => {
            let is_append_only = view.flags_for(op).contains(IFlags::APPEND);
            reads(slot) && (!writable || writes(slot)) && !(is_append_only && writes(slot))
        }
        // The kernel's ext4 refuses unaligned buffers for direct handles, FUSE copies them.
        Op::Copy { from, to, .. } => {
            let is_direct = |slot: usize| flags(slot).is_some_and(|flags| flags.direct);
            reads(from) && writes(to) && !is_direct(from) && !is_direct(to)
        }
        _ => true,
    }
}

/// Returns true if the result of the step does not depend on the progress of the transfers in
/// flight.
fn is_settled(op: &Op, view: &View) -> bool {
    let file_of = |slot: usize| view.slots[slot].map(|slot| (slot.file, slot.made));
    let is_idle = |slot: usize| {
        file_of(slot).is_none_or(|(file, made)| {
            !view.under_way.iter().any(|range| (range.file, range.made) == (file, made))
        })
    };
    let is_idle_name = |file: usize| !view.under_way.iter().any(|range| range.file == file);
    let is_apart = |slot: usize, offset: u64, len: u64| {
        let Some((file, made)) = file_of(slot) else { return true };
        // Within the file, so that nothing depends on its end.
        let (start, end) = (offset / PAGE * PAGE, (offset + len).next_multiple_of(PAGE));
        let appends = view.slots[slot].is_some_and(|slot| slot.flags.append);
        !appends
            && end <= view.sizes[file]
            && made == view.made[file]
            && view.under_way.iter().all(|range| {
                (range.file, range.made) != (file, made) || range.end <= start || end <= range.start
            })
    };
    match *op {
        Op::Submit { slot, offset, len, .. }
        | Op::Read { slot, offset, len }
        | Op::Write { slot, offset, len }
        | Op::MapRead { slot, offset, len }
        | Op::MapWrite { slot, offset, len } => is_idle(slot) || is_apart(slot, offset, len),
        Op::Close { slot }
        | Op::SeekData { slot, .. }
        | Op::SeekHole { slot, .. }
        | Op::Allocate { slot, .. }
        | Op::SetLen { slot, .. } => is_idle(slot),
        Op::Copy { from, to, .. } => is_idle(from) && is_idle(to),
        Op::SetFlags { slot, .. } => is_idle(slot),
        Op::SetLenByName { file, .. } | Op::Replace { file } | Op::RenameOver { file, .. } => {
            is_idle_name(file)
        }
        Op::SetMode { file, .. } | Op::SetOwner { file, .. } | Op::SetAcl { file, .. } => is_idle_name(file),
        Op::Open { file, flags, .. } => !flags.truncate || is_idle_name(file),
        _ => true,
    }
}
