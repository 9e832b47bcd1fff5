//! The windows of a volume and of one file.
//!
//! The module is responsible for the limits on windows and for reclaiming them. It is not
//! responsible for placing a window: [`placement`](super::placement) does that.

use std::collections::BTreeMap;

use parext4_format::{FileBlock, FsBlock, GroupNo};
use smallvec::SmallVec;

use super::window::Window;
use super::{Allocator, Run};
use crate::sync::Rank;
use crate::sync::{Arc, Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};

/// Maximum number of windows of a volume. Another window replaces the oldest.
const MAX_WINDOWS: usize = 1024;
/// Maximum number of windows of a file. Another window replaces the file's oldest.
const MAX_OF_FILE: usize = 256;

/// The windows of one file, sorted by file block. They may include reclaimed windows.
#[derive(Debug)]
pub(crate) struct FileWindows(RwLock<Windows>);

/// The windows, guarded by [`FileWindows`].
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

/// Returns the index of the window that covers file block `block`.
pub(super) fn covering(windows: &Windows, block: FileBlock) -> Option<usize> {
    let after = windows.partition_point(|window| window.first <= block);
    after.checked_sub(1).filter(|&index| windows[index].blocks().contains(block))
}

/// All windows of a volume that were not reclaimed. A thread that opens or reclaims a window holds
/// the lock of this table, so under it each free block is in a group or in a window.
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

    /// Returns true if a window ends at `block`, so that the file of the window may grow into it.
    pub(super) fn ends_at(&self, block: FsBlock) -> bool {
        self.by_age.values().any(|window| window.run.start + u64::from(window.run.len) == block)
    }
}

impl Allocator {
    /// Adds a window of `run`, which was removed from its group, to the table and to its file.
    pub(super) fn add_window(&self, table: &mut WindowTable, file: &mut Windows, first: FileBlock, run: Run) {
        self.make_room(table, file);
        let window = Arc::new(Window::new(table.next_age, first, run));
        table.next_age += 1;
        table.by_age.insert(window.age, Arc::clone(&window));
        let at = file.partition_point(|other| other.first < first);
        file.insert(at, window);
    }

    /// Removes the file's windows without blocks, and reclaims windows above the limits.
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
            self.reclaim_window(table, &file.remove(oldest));
        }
        while table.len() >= MAX_WINDOWS
            && let Some((_, oldest)) = table.by_age.pop_first()
        {
            self.release_rest(&oldest);
        }
    }

    /// Reclaims the windows of a file that extend past file block `from`.
    pub(crate) fn close_windows(&self, file: &FileWindows, from: FileBlock) {
        let mut file = file.write();
        if file.is_empty() {
            return;
        }
        let mut table = self.windows.lock();
        // Windows count in clusters.
        let from = from.to_u64() >> self.layout.cluster_bits;
        file.retain(|window| {
            let keep = window.blocks().end() <= from;
            if !keep {
                self.reclaim_window(&mut table, window);
            }
            keep
        });
    }

    /// Reclaims the oldest window with `want` contiguous blocks. Returns its group.
    pub(super) fn reclaim_together(&self, want: u32) -> Option<GroupNo> {
        let mut table = self.windows.lock();
        let window = table.by_age.values().find(|window| window.has_together(want)).map(Arc::clone)?;
        self.reclaim_window(&mut table, &window);
        Some(self.units.group_of(window.run.start).0)
    }

    /// Reclaims the oldest windows until `want` blocks are free. Returns the lock of the table; no
    /// window is opened while the caller holds it.
    pub(super) fn reclaim(&self, want: u32) -> MutexGuard<'_, WindowTable> {
        let mut table = self.windows.lock();
        let mut left = want;
        while left > 0
            && let Some((_, oldest)) = table.by_age.pop_first()
        {
            left = left.saturating_sub(self.release_rest(&oldest));
        }
        table
    }

    fn reclaim_window(&self, table: &mut WindowTable, window: &Window) {
        if table.by_age.remove(&window.age).is_some() {
            self.release_rest(window);
        }
    }

    /// Releases the remaining blocks of a window to their group. Returns their number.
    fn release_rest(&self, window: &Window) -> u32 {
        let (group, _) = self.units.group_of(window.run.start);
        let rest = window.reclaim();
        let spans = rest.iter().map(|run| run.group(&self.units).1);
        self.group(group).release(spans);
        rest.iter().map(|run| run.len).sum()
    }
}
