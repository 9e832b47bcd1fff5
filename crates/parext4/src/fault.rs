//! Planted faults: guards of the engine that a model test removes, to prove that the model detects
//! their absence.
//!
//! `guarded!` encloses a guard, and `when_planted!` a step that only a fault adds. Code reads as if
//! both were absent: the first argument of each names the fault, and the second of `guarded!` is
//! what the engine does. Only builds with `--cfg shuttle` can plant faults; in all other builds the
//! macros leave the guard alone. Each variant of [`Fault`] describes the faulty behaviour, after
//! the invariants (I) and hazards (H) of `docs/design.md` that the guard upholds.

pub(crate) use parext4_sync::{guarded, when_planted};

parext4_sync::planted_faults! {
    /// A guard that can be removed.
    pub enum Fault {
        /// I4: a write that covers part of a block holds only its own bytes.
        OwnBytesOnly,
        /// I3, H16: the size is raised in another transaction, after the one of the conversion.
        SizeLater,
        /// I7, H13: freed blocks are allocated before the transaction that frees them is durable.
        ReuseAtOnce,
        /// H27: an append writes at the visible size and claims no bytes.
        AppendAtSize,
        /// I2, H12: a read holds no range.
        ReadWithoutRange,
        /// I8: a flush begins while another one is in flight, to which the device may report the
        /// writes that both have lost.
        FlushesOverlap,
        /// I8: a flush succeeds after another one has failed.
        FailedFlushForgotten,
        /// A handle enters a transaction that is closing.
        EnterClosed,
        /// H37: a change of owner moves the space that an inode used before the change excludes
        /// charges of the inode.
        TransferUnlocked,
        /// H39: space is reserved no more before it is used, while another thread reserves.
        ChargeUnlocked,
        /// The last handle that leaves a closed gate does not wake the committer.
        LeaveWithoutWake,
        /// Spare credits that are collected for a handle also stay in their word.
        SpareTwice,
        /// H25: the times of an overwrite are not listed for the next commit.
        TimesUnlisted,
        /// A reclaimed allocation window still hands out its blocks.
        WindowOutlivesReturn,
        /// I2, H2: a write releases its range when its data is submitted to the device.
        ReleaseAtSubmission,
        /// I2, H11: a write releases its range before its blocks are converted.
        ReleaseBeforeConversion,
        /// H3: a file grows without zeroing the rest of its last block.
        TailNotZeroed,
        /// H3: the rest of the last block is zeroed without holding its range.
        ZeroTailWithoutRange,
        /// H4, H17: the size is raised before the blocks that it covers are converted, outside the
        /// handle.
        SizeFirst,
        /// H8: the commit block is written without a flush of the data.
        DataUnflushed,
        /// H8: a commit does not flush its commit block.
        CommitUnflushed,
        /// H8: a sync whose transaction another thread has committed relies on the flush of that
        /// commit, although the flush may have begun before the sync.
        ShareEveryFlush,
        /// A thread whose transaction another thread has committed still waits for the commit lock.
        WaitForTheLog,
        /// The tail of the log moves before the blocks of the earlier transactions are durable at
        /// their home locations.
        TailBeforeHome,
        /// After the log was emptied, the next commit does not record where the log begins.
        EmptyLogUnrecorded,
        /// A recovery declares the log empty before the replayed blocks are durable at their home
        /// locations.
        ReplayUnflushed,
        /// H13: a freed block is allocated while a checkpoint writes an old version of it.
        FreedDuringCheckpoint,
        /// Two threads that read or add one leaf of indirect blocks each use their own copy.
        LeafAddedTwice,
        /// A thread uses a leaf of indirect blocks as it has read it, although the leaf may have
        /// changed and been dropped meanwhile.
        OldLeafKept,
        /// Leaves of indirect blocks are dropped from memory while a thread changes them.
        LeavesDroppedInUse,
        /// H9: a write that was widened uses what it saw before it held the wider range.
        WidenUnchecked,
        /// H9: a write holds the range to which it was widened shared, as it may hold its own
        /// blocks.
        WidenAsWrite,
        /// A volume is closed although it has a queue of operations.
        QueueWhileClosing,
        /// I5, H10: a write reserves no blocks for its conversion.
        ReserveNothing,
        /// H40: a thread that finds no space ignores the claims of operations in flight, which may
        /// come back.
        ClaimsIgnored,
        /// H40: a thread that finds no space ignores that blocks have come back since its attempt.
        EventsIgnored,
        /// H40: a thread that finds no space waits for claims that began after its attempt.
        LaterClaimsAwaited,
        /// H40: an epoch of claims begins although claims of the epoch before the last one are in
        /// flight.
        EpochUnfinished,
        /// H40: blocks that were allocated and could not be mapped wait for a commit, and are lost
        /// to the claim that they came from.
        UnmappedFreed,
        /// H14: the size is stored instead of raised to a maximum.
        SizeLowered,
        /// H27: a write withdraws its announced end after it has released its range.
        WithdrawLate,
        /// H27: an append that must wait for a larger range claims other bytes after that.
        ClaimAgain,
        /// H27: an append of a part of a sector keeps its claim although the file has grown while
        /// it queued again.
        OvertakenClaimKept,
        /// H15, H27: a failed append also releases the bytes that later appends have claimed.
        FailedClaimTakesAll,
        /// H15, H27: a failed append also releases the bytes up to an end that a write has
        /// announced.
        FailedClaimTakesAnnounced,
        /// H18: a size that grows over written blocks joins no transaction.
        GrowUnjoined,
        /// H25: an inode whose times were committed still counts as listed for the next commit.
        ListedAfterCommit,
        /// H25: a sync of the volume relies on its commit to include all pending times, although
        /// the transaction may be closing.
        TimesLeftToCommit,
        /// H26: a NOWAIT append claims its bytes before it is known whether it must block.
        NowaitClaims,
        /// H26: a NOWAIT append checks for cached pages after it has claimed its bytes.
        NowaitPagesLate,
        /// H30: a conversion is marked under a handle of another transaction than the one for which
        /// the leaf is armed.
        MarkAnyTransaction,
        /// H30: marks are folded into a leaf that still accepts marks.
        FoldUnretired,
        /// H30: readers see a new list of leaves before the leaves have changed.
        LeafListFirst,
        /// A leaf is encoded without its marks.
        EncodeUnfolded,
        /// A leaf keeps its marks although it has no room for the extents that they become.
        MarksWithoutRoom,
        /// H30: a marked conversion does not set the bits that readers see.
        MarkNotInView,
        /// H30: a region of the map that changes gets a copy of its bits, while other threads set
        /// bits in the original.
        BitsCopied,
        /// I1: new blocks of a file count as written where the file had written blocks before.
        StaleWrittenBits,
        /// H30: readers see regions of the map while its leaves change.
        ViewUnlocked,
        /// H30: a leaf is changed without its lock, while other threads change it.
        LeafUnlocked,
        /// H30: a thread publishes a changed region although another thread has published one
        /// meanwhile.
        PublishUnchecked,
        /// H30: a read does not check whether the size has moved while it waited for its range.
        StaleSize,
        /// I2, H30: a queued read uses the size after the write-back, which may exceed the range
        /// that it holds.
        ReadPastRange,
        /// An inode is read from the device while another thread reads it.
        LoadTwice,
        /// An inode that was read enters the table although its loading mark is gone, because a new
        /// inode of that number was created and deleted meanwhile.
        InsertUnmarked,
        /// A deleted inode leaves the cache before its number is free.
        ForgetBeforeFree,
        /// A new inode has its links before its contents, so that it can be found by its number
        /// while its creation is undone.
        LinksBeforeContents,
        /// I6, H31: the completion of a write begins a handle inside another handle.
        HandleInHandle,
        /// H32: unwritten extents are merged although a write needs them split.
        PinsForgotten,
        /// H33: a request for a range is granted before earlier requests that conflict with it.
        #[cfg(shuttle)]
        PassWaiters,
        /// H34: every operation holds the whole file.
        HoldWholeFile,
        /// Preallocated blocks are mapped at offsets that the file has reached meanwhile.
        PreallocateBelowSize,
        /// The preallocated blocks of a file are released although a writer has opened it again.
        PreallocationFreedInUse,
        /// Blocks that a caller has allocated past the end are treated as preallocated ones.
        AllocatedAsPreallocated,
        /// Blocks that were allocated for a hole are mapped without a check that it is still a
        /// hole.
        FillUnchecked,
        /// H21: the range of a punched hole or of zeros is not rounded out to the blocks whose
        /// edges are zeroed.
        EdgesOutsideRange,
        /// H20: an operation that shifts all data after a range holds only that range.
        ShiftOutsideRange,
        /// H20: an append that waited during a shift writes at the offset that it had claimed
        /// before.
        ShiftKeepsClaims,
        /// I7, H12: a hole is punched without holding its range.
        PunchWithoutRange,
        /// A queued operation that is abandoned leaves the bytes that it claimed or the end that it
        /// announced.
        ClaimLeaked,
        /// H5, H19, H28: a direct operation holds only its own bytes, not the whole pages around
        /// them.
        PagesOutsideRange,
        /// H5, H28: a direct operation leaves the cached pages of its range in place.
        PagesNotDiscarded,
        /// H28: a direct operation that changes the device drops dirty pages of its range without
        /// writing them back.
        DroppedUnwritten,
        /// A thread that finds no memory writes back pages whose range another thread holds.
        WriteBackWithoutRange,
        /// H6: a page is clean once its data is on the device, before its block is converted.
        CleanBeforeConversion,
        /// I3: data in the page cache also raises the size on the device.
        DiskSizeFirst,
        /// H29: a buffered write reserves no space.
        DelayNothing,
        /// H29: the reservations of dropped pages are not released.
        DelayLeaked,
        /// H29: an operation that unmaps blocks frees indirect blocks on which dirty pages rely.
        DelayedIgnored,
        /// H29: indirect blocks may be freed between the check that they exist and the count of the
        /// page's blocks.
        DelayedUnlocked,
        /// H38: a thread that fills a part of a cluster does not lock the map while it looks up the
        /// rest.
        ClusterUnlocked,
        /// H38: an operation that unmaps blocks holds, and writes back, only the blocks of its
        /// range and not their clusters.
        UnmapBlocksOnly,
        /// H23: a failed buffered write leaves its bytes in the pages past the end.
        FailedWriteNotDiscarded,
        /// A sync does not wait for the write-back of other threads.
        SyncUnwaited,
        /// A thread that waits for another thread's write-back does not check whether it succeeded.
        FailureUnseen,
        /// The attributes of an inode are read and changed without its lock.
        XattrsUnlocked,
        /// A name is removed although the number of names may have changed since it was checked.
        LinksUnlocked,
        /// An inode is found by a name while another name of it is the last that its links count,
        /// and is removed.
        NamedUnlocked,
        /// A queue's thread sleeps without checking for submitted operations.
        SleepUnchecked,
        /// A thread that ends a page's filling, write-back or last pin wakes no waiting thread.
        WaitersNotWoken,
        /// A thread that ends a page's filling, write-back or last pin notifies before the waiting
        /// thread sleeps.
        WakeTooEarly,
        /// A thread that drops a page's last pin wakes waiting threads only if the page was not
        /// evicted meanwhile.
        WakeIfStillMarked,
        /// A file with dirty pages counts as listed before it is on the list.
        ListedAhead,
        /// A thread that writes to a dirty page does not list its file, because the thread that
        /// made the page dirty will.
        ListedByOthers,
        /// A dirty file counts as unlisted while a thread checks whether it can leave the list.
        UnlistedWhileChecked,
        /// A check whether a file can leave the list of dirty files counts the file as listed if it
        /// finds a dirty page, although another thread has removed the file.
        ListedByChecks,
        /// A writer that ends does not wake the writers that wait for its slot.
        SlotFreedUnnotified,
        /// A pinned page is evicted.
        EvictPinned,
        /// A dirty page is evicted.
        EvictDirty,
        /// Two threads write back a page at the same time.
        WriteBackTwice,
        /// A page that was found by an old path is not checked again after the pin.
        PinUnchecked,
        /// A thread claims a slot of a leaf that was freed.
        EnterFreedLeaf,
        /// A leaf is freed while it is in use.
        FreeUsedLeaf,
        /// A leaf has its key before the tree refers to it.
        LeafNamedFirst,
        /// A region is clean while a thread checks whether it has dirty pages.
        RegionCleanWhileChecked,
        /// A region is clean although a page became dirty after the search that found none.
        RegionUnchecked,
        /// Two threads check the regions of a file at the same time.
        RegionChecksOverlap,
        /// The end of a write-back also cleans units that were changed meanwhile.
        WriteBackCleansAll,
        /// H5: clean pages that are written again with dirty neighbours do not count as under
        /// write-back.
        RewriteNotMarked,
        /// H5, H6: the pages of a batch are clean before its requests have completed.
        BatchUnawaited,
        /// H35: a write proceeds although its lease has ended.
        LeaseIgnored,
        /// H35: an owner that finds another number in its block continues.
        OtherOwnerIgnored,
        /// H35: a machine that is slow to replace a clean block does not wait for machines that
        /// opened the volume meanwhile.
        LateClaim,
        /// H35: a machine that is slow to replace a block waits as that block asks for, not as the
        /// owners of meanwhile may need.
        LateWait,
        /// H35: an owner writes its block although the lease has ended since it read the block.
        LateUpdate,
        /// Pages are discarded while they are pinned, filled or written back.
        DiscardHeld,
        /// H36: an operation that changes contents in the inode holds no range.
        InlineUnheld,
        /// H8, H36: contents leave the inode before their block is written.
        MovedUnwritten,
    }
}
