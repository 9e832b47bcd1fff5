//! Guards that the model tests take away, to see that the models notice. Only under `--cfg shuttle`; in
//! every other build [`planted`] is `false` at compile time.

/// A guard to do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Nothing is missing.
    #[cfg(shuttle)]
    None,
    /// I4: a write that fills part of a block holds only its own bytes.
    OwnBytesOnly,
    /// I3, H16: the size follows in a transaction of its own, after the conversion's.
    SizeLater,
    /// I7, H13: freed blocks are reused before the transaction that frees them is durable.
    ReuseAtOnce,
    /// H27: appends go to the visible size instead of claiming their bytes.
    AppendAtSize,
    /// I2, H12: reads hold nothing.
    ReadUnheld,
    /// Handles enter the transaction although it is closing.
    EnterClosed,
    /// The last handle does not tell the commit that it has ended.
    LeaveQuietly,
    /// Credits that are collected for another handle stay where they were, too.
    SpareTwice,
    /// H25: no commit hears of the times of overwrites.
    TimesUnlisted,
    /// A window that was taken back still gives out its blocks.
    WindowOutlivesReturn,
    /// I2, H2: the range of a write is let go when its data is handed to the device.
    ReleaseAtSubmission,
    /// I2, H11: the range of a write is let go before the map says that it was written.
    ReleaseBeforeConversion,
    /// H3: a file grows over what its last block holds behind its end.
    TailKept,
    /// H3: the last block is zeroed without being held.
    TailUnheld,
    /// H4, H17: the size is raised before what it covers is converted, in no handle.
    SizeFirst,
    /// H8: the commit block does not wait until the data is durable.
    DataUnflushed,
    /// H8: the commit does not wait until its block is durable.
    CommitUnflushed,
    /// H8: a sync that shares the commit of another thread never flushes the device.
    ShareEveryFlush,
    /// A thread whose transaction another thread has committed still waits for the lock of the log.
    WaitForTheLog,
    /// The start of the log moves on before the blocks of the transactions before it are durable at home.
    TailBeforeHome,
    /// After the log was emptied recovery is not told that it has begun again.
    EmptyLogUnseen,
    /// H13: a freed block is allocated again while a checkpoint writes an old version of it.
    FreedOnItsWayHome,
    /// H9: what is widened to was looked at before it was held.
    WidenBlindly,
    /// H9: what is widened to may be shared, as the blocks of a write may.
    WidenAsWrite,
    /// A volume is closed although it has a queue of operations.
    QueueWhileClosing,
    /// I5, H10: nothing is reserved for the conversion.
    ReserveNothing,
    /// H14: the size is set, not raised.
    SizeLowered,
    /// H27: the end of a write is announced when its range is not held any more.
    WithdrawLate,
    /// H27: an append that needs a larger range by the time it is granted claims another place.
    ClaimAgain,
    /// H15, H27: an append that fails takes back what was claimed behind it, too.
    FailedClaimTakesAll,
    /// H18: a size that grows over written blocks is in no transaction.
    GrowUnjoined,
    /// H25: an inode whose times rode along with a transaction counts as if it were still on the list.
    ListedForEver,
    /// H26: an append that must not wait claims its bytes before it knows whether it has to.
    NowaitClaims,
    /// H26: a NOWAIT append checks for cached pages after it has claimed its bytes.
    NowaitPagesLate,
    /// H30: a conversion is marked under a handle of another transaction than the leaf is armed for.
    MarkAnyTransaction,
    /// H30: marks are folded into a leaf that still takes some.
    FoldUnretired,
    /// H30: readers are shown the leaves before those have changed.
    DirectoryFirst,
    /// A leaf is encoded without its marks.
    EncodeUnfolded,
    /// A leaf keeps its marks though it has no room for what they come to.
    MarksWithoutRoom,
    /// H30: a mark is not shown to readers.
    MarkUnshown,
    /// H30: a region of the map gets bits of its own when it changes, not those that others are setting.
    BitsCopied,
    /// I1: what was written where a file had blocks before counts for those that it has there now.
    BitsKept,
    /// H30: readers are shown regions of the map while its leaves change.
    ViewUnheld,
    /// H30: a leaf is changed beside others without its lock.
    LeafUnheld,
    /// H30: who shows a change of the map does not look whether somebody else was faster.
    UpdateBlindly,
    /// H30: a read does not look again whether the end has moved while it waited.
    StaleSize,
    /// I2, H30: a queue's read uses the size after the write-back, which may lie past the range that it holds.
    EndUnheld,
    /// An inode is read from the device although another thread is reading it.
    LoadTwice,
    /// An inode that was read is put into the table although its mark is gone, because a new inode of the number came and
    /// went meanwhile.
    PutUnmarked,
    /// An inode that is being deleted is forgotten before its number is free.
    ForgetBeforeFree,
    /// I6, H31: the completion of a write begins a handle inside another.
    HandleInHandle,
    /// H32: unwritten extents are joined again though a write needs them cut.
    PinsForgotten,
    /// H33: a request for a range passes those that wait.
    #[cfg(shuttle)]
    PassWaiters,
    /// H34: whatever needs a range holds the whole file.
    HoldWholeFile,
    /// Blocks are mapped ahead where the file has grown to meanwhile.
    AheadWithin,
    /// Blocks ahead of a file are given back though somebody writes it again.
    AheadUnheld,
    /// Blocks that somebody allocated behind the end are taken for blocks mapped ahead.
    KeptAsAhead,
    /// Blocks that were found for a hole are mapped without a look whether it still is one.
    FillBlindly,
    /// H21: a punched or zeroed range is not rounded out to the blocks whose edges it zeroes.
    EdgesUnheld,
    /// H20: who moves everything behind a range holds that range alone.
    ShiftUnheld,
    /// H20: an append that waited while everything behind moved goes where it belonged before.
    ShiftKeepsClaims,
    /// I7, H12: a hole is punched without holding its range.
    PunchUnheld,
    /// An operation of a queue that is given up leaves what it claimed or announced.
    StakeForgotten,
    /// H5, H19, H28: who goes past the page cache holds only its own bytes of the pages in its way.
    PagesUnheld,
    /// H5, H28: who goes past the page cache leaves its pages as they are.
    PagesKept,
    /// H28: what is dirty in the way of an operation that changes the device past the page cache is dropped.
    DroppedUnwritten,
    /// Who finds no memory writes pages back that others hold.
    WriteBackUnheld,
    /// H6: a page is clean when its data is on the device, before the map says so.
    CleanBeforeConversion,
    /// I3: data in the page cache raises the size on the device too.
    DiskSizeFirst,
    /// H29: no space is kept for data in the page cache.
    DelayNothing,
    /// H29: what was kept for pages that are dropped stays kept.
    DelayForgotten,
    /// H23: a write that fails leaves its bytes in the pages behind the end.
    ShortKept,
    /// A sync does not wait for what others write back.
    SyncUnwaited,
    /// Who waits for what others write back does not look whether they could.
    FailureUnseen,
    /// The attributes of an inode are read and changed without its lock.
    XattrsUnheld,
    /// A name is removed although the number of names that it was checked for may have changed.
    LinksUnheld,
    /// A queue's thread goes to sleep without looking for what it was given.
    SleepUnchecked,
    /// Who ends a page's filling, write-back or last pin wakes nobody.
    WaitersForgotten,
    /// The same does not wait until who is about to sleep sleeps.
    WakeTooEarly,
    /// A file with dirty pages counts as listed before it is.
    ListedAhead,
    /// Who writes to a page that is dirty leaves it to others to list its file.
    ListedByOthers,
    /// A dirty file counts as unlisted while a thread checks whether it can come off the list.
    UnlistedWhileChecked,
    /// A writer that ends wakes nobody who waits for its place.
    PlaceFreedUnheard,
    /// A page is evicted under somebody who uses it.
    EvictPinned,
    /// A page is evicted that was not written back.
    EvictDirty,
    /// Two threads write a page back at once.
    WriteBackTwice,
    /// A page is found by an old path, and not looked at again.
    PinUnchecked,
    /// A slot of a leaf is claimed though the leaf was freed.
    EnterFreedLeaf,
    /// A leaf is freed though somebody uses it.
    FreeUsedLeaf,
    /// A leaf has its name before the tree leads to it.
    LeafNamedFirst,
    /// A write-back that ends cleans also what was changed meanwhile.
    WriteBackCleansAll,
    /// H5: clean pages that are written again beside dirty ones do not count as being written back.
    RewriteUnheld,
    /// H5, H6: the pages of a batch are clean before its requests are done.
    BatchUnawaited,
    /// Pages are discarded though they are pinned, filled or written back.
    DiscardHeld,
}

#[cfg(shuttle)]
thread_local! {
    /// All threads of a model are one of the system's.
    static PLANTED: std::cell::Cell<Fault> = const { std::cell::Cell::new(Fault::None) };
}

/// Takes away a guard in the models that the calling thread runs.
#[cfg(shuttle)]
pub fn plant(fault: Fault) {
    PLANTED.set(fault);
}

/// Whether `fault` is planted.
#[cfg(shuttle)]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() == fault
}

/// Whether `fault` is planted.
#[cfg(not(shuttle))]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}
