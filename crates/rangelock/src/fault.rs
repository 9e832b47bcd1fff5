//! Defects that the models in `tests/shuttle` must find. They can be planted only under
//! `--cfg shuttle`.

parext4_sync::planted_faults! {
    /// A defect of the lock.
    pub enum Fault {
        /// Every request is granted.
        SkipOverlapCheck,
        /// A request ignores earlier requests that wait.
        PassWaiters,
        /// Waiters are granted but not woken.
        LoseWakeups,
        /// A waiter is woken when the first of its slots grants it, not the last.
        WakeAtFirstSlot,
        /// A request with several slots enters only the first.
        EnterFirstSlotOnly,
        /// A request enters its slots one at a time, not with all of them locked.
        EnterSlotsOneByOne,
        /// An expansion drops the requests that hold a range.
        ExpandDropsHolders,
        /// An expansion drops the requests that wait.
        ExpandDropsWaiters,
        /// A thread that waited for the mutex of the single slot does not check whether the lock
        /// expanded meanwhile.
        MissExpansion,
        /// Inflating a slot drops the holders in its word.
        InflateDropsHolders,
        /// A release that finds the word of its slot changed does not release in the queue.
        ReleaseIgnoresQueue,
        /// Deflating frees the word of a slot while its queue is in use.
        DeflateInUse,
        /// The word of the single slot can be acquired after the lock expanded.
        ReuseSingleSlot,
        /// A request that failed to acquire all its words keeps the acquired ones when it queues.
        KeepPartialGrant,
        /// A request that has acquired its words does not check for wide requests.
        IgnoreWide,
        /// A request that has locked its slots does not check again for wide requests.
        CheckWideOnce,
        /// A wide request does not enter the slots that are not free.
        WideSkipsSlots,
        /// A wide request that shrinks moves to the slots of its new range.
        ShrinkMovesWide,
        /// A shrink does not release the slots that it leaves.
        ShrinkKeepsSlots,
        /// A cancelled request grants none of the requests that it blocked.
        CancelGrantsNothing,
    }
}
