//! The contents that a file may have after a crash.
//!
//! A sector of data is a *cell*. Its history moves with it when ranges are collapsed or inserted.
//! After a crash the file consists of the cells in their order at a moment since the last sync, and
//! each cell holds one of its values since it became durable.

use std::ops::Range;

use testkit::ops::{FileOp, Way};
use testkit::sector::{SECTOR, Seen, identify};

/// Value of a cell: zeros, or the data that operation `sequence` wrote into sector `number`.
pub type Content = Option<(u64, u64)>;

#[derive(Clone, Copy, Debug)]
struct Version {
    /// The operation that wrote it.
    operation: usize,
    content: Content,
    /// The data is on the device, or in the extent map, when the operation returns. If false, it
    /// may be in the page cache only.
    settled: bool,
}

/// The file while one operation runs, and until the next begins. Sizes are in sectors.
#[derive(Clone, Copy, Debug)]
struct OperationState {
    /// Events recorded when the operation began.
    events: usize,
    layout: usize,
    /// The visible size, and a lower bound of the size on the device.
    size: u64,
    least: u64,
}

/// A completed sync.
#[derive(Clone, Debug)]
struct Synced {
    /// Events recorded when it returned.
    events: usize,
    operation: usize,
    /// The sectors whose data it made durable.
    sectors: Range<u64>,
}

/// The history of one file.
#[derive(Debug)]
pub struct History {
    /// By cell: its values in the order of their operations.
    versions: Vec<Vec<Version>>,
    /// The cells of the file in their order. After the last one there are zeros.
    layouts: Vec<Vec<usize>>,
    /// By operation. The first entry is the creation of the file, which is durable.
    states: Vec<OperationState>,
    synced: Vec<Synced>,
}

impl History {
    /// Returns the history of an empty file.
    pub fn new() -> Self {
        let state = OperationState { events: 0, layout: 0, size: 0, least: 0 };
        Self { versions: Vec::new(), layouts: vec![Vec::new()], states: vec![state], synced: Vec::new() }
    }

    fn state(&mut self) -> &mut OperationState {
        self.states.last_mut().expect("a history has a first entry")
    }

    /// Returns the visible size.
    pub fn size(&self) -> u64 {
        self.states[self.states.len() - 1].size
    }

    /// Returns the number of the next operation.
    pub fn next(&self) -> u64 {
        self.states.len() as u64
    }

    /// Notes that the operation begins after `events` recorded events.
    pub fn begin(&mut self, op: FileOp, events: usize) {
        let state = OperationState { events, ..*self.state() };
        self.states.push(state);
        let sectors = |bytes: u64| bytes / SECTOR as u64;
        let range = |offset: u64, len: u64| sectors(offset)..sectors(offset + len);
        match op {
            FileOp::Write { way, offset, len } => self.write(way, range(offset, len)),
            FileOp::Append { way, len } => self.write(way, state.size..state.size + sectors(len)),
            FileOp::SetLen { size } => {
                self.add(sectors(size)..u64::MAX, true, |_| None);
                self.set_size(sectors(size));
            }
            FileOp::PunchHole { offset, len } => self.add(range(offset, len), true, |_| None),
            FileOp::ZeroRange { offset, len, keep_size } => {
                self.add(range(offset, len), true, |_| None);
                self.allocate(sectors(offset + len), keep_size);
            }
            FileOp::Allocate { offset, len, keep_size } => self.allocate(sectors(offset + len), keep_size),
            // Zeros at the end move, too: a later write into their blocks is in both layouts, and
            // the old one is seen after a crash that undoes the move.
            FileOp::CollapseRange { offset, len } => {
                self.extend(state.size);
                let mut cells = self.cells().clone();
                let Range { start, end } = range(offset, len);
                cells.drain(at(start).min(cells.len())..at(end).min(cells.len()));
                self.rearrange(cells, state.size - sectors(len));
            }
            FileOp::InsertRange { offset, len } => {
                let (first, count) = (sectors(offset), sectors(len));
                self.extend(state.size.max(first));
                let mut cells = self.cells().clone();
                let new = self.new_cells(at(count));
                cells.splice(at(first)..at(first), new);
                self.rearrange(cells, state.size + count);
            }
            FileOp::SyncRange { .. } | FileOp::SyncData { .. } | FileOp::SyncAll { .. } => {}
            FileOp::Read { .. } | FileOp::Seek { .. } => {}
        }
    }

    /// Notes that the last operation has returned after `events` recorded events.
    pub fn end(&mut self, op: FileOp, events: usize) {
        let size = self.size();
        let sectors = match op {
            FileOp::SyncData { .. } | FileOp::SyncAll { .. } => {
                self.state().least = size;
                0..u64::MAX
            }
            FileOp::SyncRange { offset, len } | FileOp::Write { way: Way::Synced, offset, len } => {
                offset / SECTOR as u64..(offset + len) / SECTOR as u64
            }
            FileOp::Append { way: Way::Synced, len } => size - len / SECTOR as u64..size,
            _ => return,
        };
        // The size covers the durable data.
        let holds_data = |&sector: &u64| self.last_content(sector).is_some();
        let last = (sectors.start..sectors.end.min(size)).rev().find(holds_data);
        let state = self.state();
        state.least = state.least.max(last.map_or(0, |last| last + 1));
        let operation = self.states.len() - 1;
        self.synced.push(Synced { events, operation, sectors });
    }

    /// Returns the current sectors of the file.
    pub fn contents(&self) -> Vec<Content> {
        (0..self.size()).map(|sector| self.last_content(sector)).collect()
    }

    fn last_content(&self, sector: u64) -> Content {
        let cell = self.cells().get(at(sector))?;
        self.versions[*cell].last()?.content
    }

    fn cells(&self) -> &Vec<usize> {
        &self.layouts[self.layouts.len() - 1]
    }

    fn write(&mut self, way: Way, sectors: Range<u64>) {
        self.extend(sectors.end);
        let sequence = self.next() - 1;
        let direct = way.is_direct();
        self.add(sectors.clone(), direct, |number| Some((sequence, number)));
        let state = self.state();
        state.size = state.size.max(sectors.end);
        if direct {
            state.least = state.least.max(sectors.end);
        }
    }

    /// Adds the values that the operation writes to the cells of its range.
    fn add(&mut self, sectors: Range<u64>, settled: bool, content: impl Fn(u64) -> Content) {
        let operation = self.states.len() - 1;
        let cells = &self.layouts[self.layouts.len() - 1];
        for (number, &cell) in (0..sectors.end).zip(cells).skip(at(sectors.start)) {
            self.versions[cell].push(Version { operation, content: content(number), settled });
        }
    }

    fn allocate(&mut self, end: u64, keep_size: bool) {
        if !keep_size && end > self.size() {
            self.set_size(end);
        }
    }

    fn set_size(&mut self, size: u64) {
        let state = self.state();
        (state.size, state.least) = (size, size);
    }

    /// Adds cells until the first `sectors` sectors have one.
    fn extend(&mut self, sectors: u64) {
        let new = self.new_cells(at(sectors).saturating_sub(self.cells().len()));
        let last = self.layouts.len() - 1;
        self.layouts[last].extend(new);
    }

    fn new_cells(&mut self, count: usize) -> Range<usize> {
        let first = self.versions.len();
        // Sectors at the end of the file may have read as zeros since earlier operations.
        let zeros = Version { operation: 0, content: None, settled: true };
        self.versions.resize(first + count, vec![zeros]);
        first..first + count
    }

    fn rearrange(&mut self, cells: Vec<usize>, size: u64) {
        self.layouts.push(cells);
        self.set_size(size);
        self.state().layout = self.layouts.len() - 1;
    }

    /// Checks the state after a crash in which all events before `durable` are certainly on the
    /// device, and no event from `last` on has begun.
    ///
    /// # Errors
    /// A description of the difference.
    pub fn check(&self, found: &[Content], durable: usize, last: usize) -> Result<(), String> {
        let synced = || self.synced.iter().take_while(|synced| synced.events <= durable);
        let first = synced().last().map_or(0, |synced| synced.operation);
        let last = self.states.iter().rposition(|state| state.events <= last).unwrap_or(0);
        let mut why = format!("{} sectors, as never since operation {first}, up to {last}", found.len());
        let since = self.durable_versions(synced());
        for state in &self.states[first..=last] {
            if !(state.least..=state.size).contains(&(found.len() as u64)) {
                continue;
            }
            let cells = &self.layouts[state.layout];
            let wrong = (0..found.len()).find(|&sector| match cells.get(sector) {
                Some(&cell) => !self.may_hold(cell, since[cell], last, found[sector]),
                None => found[sector].is_some(),
            });
            let Some(sector) = wrong else { return Ok(()) };
            let versions = cells.get(sector).map_or(&[][..], |&cell| &self.versions[cell][since[cell]..]);
            why = format!("sector {sector} of {}: {:?}, not of {versions:?}", found.len(), found[sector]);
        }
        Err(why)
    }

    fn may_hold(&self, cell: usize, since: usize, last: usize, content: Content) -> bool {
        let possible = self.versions[cell][since..].iter().take_while(|version| version.operation <= last);
        possible.into_iter().any(|version| version.content == content)
    }

    /// By cell: the oldest version that it may still have.
    fn durable_versions<'a>(&self, synced: impl Iterator<Item = &'a Synced>) -> Vec<usize> {
        let mut since = vec![0; self.versions.len()];
        for Synced { operation, sectors, .. } in synced {
            let cells = &self.layouts[self.states[*operation].layout];
            for (sector, &cell) in (0..).zip(cells) {
                // The data of other sectors may have been in the page cache only.
                let covered = sectors.contains(&sector);
                let is_durable = |v: &Version| v.operation <= *operation && (covered || v.settled);
                let durable = self.versions[cell].iter().rposition(is_durable);
                since[cell] = since[cell].max(durable.unwrap_or(0));
            }
        }
        since
    }
}

/// Returns the contents of the sectors of file `file`, whichever sector they were written for.
///
/// # Errors
/// If the bytes are neither zeros nor whole sectors of the file.
pub fn contents(bytes: &[u8], file: u32) -> Result<Vec<Content>, String> {
    let content = |bytes: &[u8]| {
        let number = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
        Ok(match identify(bytes, file, number)? {
            Seen::Zero => None,
            Seen::Data(stamp) => Some((stamp.sequence, number)),
        })
    };
    bytes.chunks(SECTOR).map(content).collect()
}

fn at(sector: u64) -> usize {
    usize::try_from(sector).unwrap()
}
