//! What may be found of a file after a crash.
//!
//! A sector of data is a *cell*, which keeps its history when ranges taken out or put in move it. So what a crash leaves
//! is: cells in the order of some moment since the last sync, each with something that it held since it was durable.

use std::ops::Range;

use super::op::{Op, Way};
use testkit::sector::{SECTOR, Seen, identify};

/// What a cell holds: zeros, or what operation `sequence` wrote into sector `number`.
pub type Content = Option<(u64, u64)>;

#[derive(Clone, Copy, Debug)]
struct Version {
    /// The operation that made it.
    operation: usize,
    content: Content,
    /// It is on the device, or in the map, when the operation returns. Else it may be in the page cache only.
    settled: bool,
}

/// The file while one operation runs, and until the next begins. Sizes in sectors.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Events recorded when it began.
    events: usize,
    layout: usize,
    /// The visible size, and one that the size on the device has at least.
    size: u64,
    least: u64,
}

/// A sync that came back.
#[derive(Clone, Debug)]
struct Synced {
    /// Events recorded until then.
    events: usize,
    operation: usize,
    /// The sectors whose data it made durable.
    sectors: Range<u64>,
}

/// All that was done to one file.
#[derive(Debug)]
pub struct Story {
    /// By cell, in the order of their operations.
    versions: Vec<Vec<Version>>,
    /// The cells of the file in their order. Behind the last there are zeros.
    layouts: Vec<Vec<usize>>,
    /// By operation; the first is the creation of the file, which is durable.
    states: Vec<State>,
    synced: Vec<Synced>,
}

impl Story {
    /// An empty file.
    pub fn new() -> Self {
        let state = State { events: 0, layout: 0, size: 0, least: 0 };
        Self { versions: Vec::new(), layouts: vec![Vec::new()], states: vec![state], synced: Vec::new() }
    }

    fn state(&mut self) -> &mut State {
        self.states.last_mut().expect("a story has a beginning")
    }

    /// The visible size.
    pub fn size(&self) -> u64 {
        self.states[self.states.len() - 1].size
    }

    /// The number of the operation that begins next.
    pub fn next(&self) -> u64 {
        self.states.len() as u64
    }

    /// The operation begins, when so many `events` are recorded.
    pub fn begin(&mut self, op: Op, events: usize) {
        let state = State { events, ..*self.state() };
        self.states.push(state);
        match op {
            Op::Write { way, first, sectors } => self.write(way, first..first + sectors),
            Op::Append { way, sectors } => self.write(way, state.size..state.size + sectors),
            Op::SetLen { sectors } => {
                self.add(sectors..u64::MAX, true, |_| None);
                self.set_size(sectors);
            }
            Op::Punch { first, sectors } => self.add(first..first + sectors, true, |_| None),
            Op::Zero { first, sectors, keep_size } => {
                self.add(first..first + sectors, true, |_| None);
                self.allocate(first + sectors, keep_size);
            }
            Op::Allocate { first, sectors, keep_size } => self.allocate(first + sectors, keep_size),
            Op::Collapse { first, sectors } => {
                let mut cells = self.cells().clone();
                cells.drain(at(first).min(cells.len())..at(first + sectors).min(cells.len()));
                self.rearrange(cells, state.size - sectors);
            }
            Op::Insert { first, sectors } => {
                self.extend(first);
                let mut cells = self.cells().clone();
                let new = self.new_cells(at(sectors));
                cells.splice(at(first)..at(first), new);
                self.rearrange(cells, state.size + sectors);
            }
            Op::SyncRange { .. } | Op::SyncData { .. } | Op::SyncAll { .. } => {}
        }
    }

    /// The operation that began last has come back, when so many `events` are recorded.
    pub fn end(&mut self, op: Op, events: usize) {
        let size = self.size();
        let sectors = match op {
            Op::SyncData { .. } | Op::SyncAll { .. } => {
                self.state().least = size;
                0..u64::MAX
            }
            Op::SyncRange { first, sectors } | Op::Write { way: Way::Durable, first, sectors } => {
                first..first + sectors
            }
            Op::Append { way: Way::Durable, sectors } => size - sectors..size,
            _ => return,
        };
        // The size covers what is durable.
        let holds_data = |&sector: &u64| self.last_content(sector).is_some();
        let last = (sectors.start..sectors.end.min(size)).rev().find(holds_data);
        let state = self.state();
        state.least = state.least.max(last.map_or(0, |last| last + 1));
        let operation = self.states.len() - 1;
        self.synced.push(Synced { events, operation, sectors });
    }

    /// The sectors of the file as it is.
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
        let direct = way == Way::Direct;
        self.add(sectors.clone(), direct, |number| Some((sequence, number)));
        let state = self.state();
        state.size = state.size.max(sectors.end);
        if direct {
            state.least = state.least.max(sectors.end);
        }
    }

    /// Adds what the operation makes of those cells that there are.
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

    /// Sees to it that the first `sectors` have cells.
    fn extend(&mut self, sectors: u64) {
        let new = self.new_cells(at(sectors).saturating_sub(self.cells().len()));
        let last = self.layouts.len() - 1;
        self.layouts[last].extend(new);
    }

    fn new_cells(&mut self, count: usize) -> Range<usize> {
        let first = self.versions.len();
        // Those at the end of the file may have been zeros of it for long.
        let zeros = Version { operation: 0, content: None, settled: true };
        self.versions.resize(first + count, vec![zeros]);
        first..first + count
    }

    fn rearrange(&mut self, cells: Vec<usize>, size: u64) {
        self.layouts.push(cells);
        self.set_size(size);
        self.state().layout = self.layouts.len() - 1;
    }

    /// Checks what a crash has left, when all before event `durable` is on the device for sure and nothing from event
    /// `last` on has begun.
    ///
    /// # Errors
    /// What is not as it may be.
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

    /// By cell: the first version that it may still have.
    fn durable_versions<'a>(&self, synced: impl Iterator<Item = &'a Synced>) -> Vec<usize> {
        let mut since = vec![0; self.versions.len()];
        for Synced { operation, sectors, .. } in synced {
            let cells = &self.layouts[self.states[*operation].layout];
            for (sector, &cell) in (0..).zip(cells) {
                // Of the other sectors, what was in the page cache may have stayed there.
                let covered = sectors.contains(&sector);
                let is_durable = |v: &Version| v.operation <= *operation && (covered || v.settled);
                let durable = self.versions[cell].iter().rposition(is_durable);
                since[cell] = since[cell].max(durable.unwrap_or(0));
            }
        }
        since
    }
}

/// What the sectors of file `file` hold, wherever they belong.
///
/// # Errors
/// If it is anything but zeros and whole sectors of the file.
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
