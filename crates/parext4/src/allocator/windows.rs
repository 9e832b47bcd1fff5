//! All windows of a volume, and those of one file; taking them back.

use std::collections::BTreeMap;

use parext4_format::{FsBlock, GroupNo};
use smallvec::SmallVec;

use super::window::Window;
use super::{Allocator, Run};
use crate::sync::Rank;
use crate::sync::{Arc, Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};

/// Windows that a volume has at most; then the oldest makes room.
const MAX_WINDOWS: usize = 1024;
/// Windows that a file has at most; then its oldest makes room.
const MAX_OF_FILE: usize = 256;

/// The windows of one file, by file block. Some may have been taken back.
#[derive(Debug)]
pub(crate) struct FileWindows(RwLock<Windows>);

/// What [`FileWindows`] guards.
pub(super) type Windows = SmallVec<[Arc<Window>; 1]>;

impl FileWindows {
    pub(crate) fn new() -> Self {
        Self(RwLock::new(Rank::FileWindows, Windows::new()))
    }

    pub(super) fn read(&self) -> ReadGuard<'_, Windows> {
        self.0.read()
    }

    pub(super) fn write(&self) -> WriteGuard<'_, Windows> {
        self.0.write()
    }
}

/// Which window covers file block `block`.
pub(super) fn covering(windows: &Windows, block: u32) -> Option<usize> {
    let behind = windows.partition_point(|window| window.first <= block);
    behind.checked_sub(1).filter(|&index| windows[index].covers(block))
}

/// Every window that was not taken back. Whoever opens one or takes one back holds this, so that under it every
/// free block is in its group or in a window.
#[derive(Debug)]
pub(super) struct WindowTable {
    next_age: u64,
    by_age: BTreeMap<u64, Arc<Window>>,
}

impl WindowTable {
    pub(super) fn new() -> Mutex<Self> {
        Mutex::new(Rank::WindowTable, Self { next_age: 0, by_age: BTreeMap::new() })
    }

    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }

    /// Whether a window ends right before `block`, and its file may want to grow into it.
    pub(super) fn ends_at(&self, block: FsBlock) -> bool {
        self.by_age.values().any(|window| window.run.start + u64::from(window.run.len) == block)
    }
}

impl Allocator {
    /// Adds a window of `run`, which is out of its group, to the table and to its file's windows.
    pub(super) fn add_window(&self, table: &mut WindowTable, file: &mut Windows, first: u32, run: Run) {
        self.make_room(table, file);
        let window = Arc::new(Window::new(table.next_age, first, run));
        table.next_age += 1;
        table.by_age.insert(window.age, Arc::clone(&window));
        let at = file.partition_point(|other| other.first < first);
        file.insert(at, window);
    }

    /// Forgets the file's windows that are used up, and takes back what is too many.
    fn make_room(&self, table: &mut WindowTable, file: &mut Windows) {
        file.retain(|window| {
            let used_up = window.is_used_up();
            if used_up {
                table.by_age.remove(&window.age);
            }
            !used_up
        });
        if file.len() >= MAX_OF_FILE
            && let Some(oldest) = (0..file.len()).min_by_key(|&index| file[index].age)
        {
            self.take_back(table, &file.remove(oldest));
        }
        while table.len() >= MAX_WINDOWS
            && let Some((_, oldest)) = table.by_age.pop_first()
        {
            self.put_back(&oldest);
        }
    }

    /// Takes back the windows of a file that reach behind file block `from`.
    pub(crate) fn close_windows(&self, file: &FileWindows, from: u32) {
        let mut file = file.write();
        if file.is_empty() {
            return;
        }
        let mut table = self.windows.lock();
        file.retain(|window| {
            let keep = window.end() <= from;
            if !keep {
                self.take_back(&mut table, window);
            }
            keep
        });
    }

    /// Takes back the oldest window that has `want` blocks together; returns its group.
    pub(super) fn reclaim_together(&self, want: u32) -> Option<GroupNo> {
        let mut table = self.windows.lock();
        let window = table.by_age.values().find(|window| window.has_together(want)).map(Arc::clone)?;
        self.take_back(&mut table, &window);
        Some(self.layout.group_of(window.run.start).0)
    }

    /// Takes back the oldest windows until `want` blocks came back. While the caller keeps what this returns, no
    /// window is opened.
    pub(super) fn reclaim(&self, want: u32) -> MutexGuard<'_, WindowTable> {
        let mut table = self.windows.lock();
        let mut left = want;
        while left > 0
            && let Some((_, oldest)) = table.by_age.pop_first()
        {
            left = left.saturating_sub(self.put_back(&oldest));
        }
        table
    }

    fn take_back(&self, table: &mut WindowTable, window: &Window) {
        if table.by_age.remove(&window.age).is_some() {
            self.put_back(window);
        }
    }

    /// Gives what is left of a window to its group; returns how many blocks.
    fn put_back(&self, window: &Window) -> u32 {
        let (group, _) = self.layout.group_of(window.run.start);
        let rest = window.take_back();
        let spans = rest.iter().map(|run| (self.layout.group_of(run.start).1, run.len));
        self.group(group).release(spans);
        rest.iter().map(|run| run.len).sum()
    }
}
