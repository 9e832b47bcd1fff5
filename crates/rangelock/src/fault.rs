//! Defects that the models in `tests/shuttle.rs` must find; they can be planted only under `--cfg shuttle`.

/// A way in which a lock made by `RangeLock::with_fault` is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Grants every request.
    SkipOverlapCheck,
    /// Lets a request pass those that wait.
    PassWaiters,
    /// Grants waiters without telling them.
    LoseWakeUps,
    /// Tells a waiter when the first of its slots has granted it, not the last.
    WakeAtFirstSlot,
    /// Takes only the first slot of a range that has several.
    FirstSlotOnly,
    /// Takes the slots of a range one by one, not all in the same moment.
    SlotsOneByOne,
    /// Forgets those that hold a range when the lock spreads over its slots.
    SpreadForgetsHolders,
    /// Forgets those that wait when the lock spreads over its slots.
    SpreadForgetsWaiters,
    /// Does not notice that the lock has spread while the mutex was waited for.
    MissSpread,
    /// Drops what a slot's word says when its queue is needed.
    InflateForgetsHolder,
    /// A release that finds the word of its slot changed does not look into the queue.
    ReleaseIgnoresQueue,
    /// Makes the word of a slot free while its queue is in use.
    DeflatePastWaiters,
    /// The one slot can be taken again after the lock has spread.
    SpreadReopens,
    /// A request that could not take the words of all its slots keeps those it has, and queues.
    KeepSomeSlots,
    /// A request that has its words does not look whether a wide one is there.
    IgnoreGate,
    /// A request that has its slots locked does not look again whether a wide one has come.
    GateOnlyOnce,
    /// A wide request does not look for slots in which others are.
    WideIgnoresSlots,
    /// A wide request that shrinks moves to the slots of what is left.
    ShrinkMovesWide,
    /// A shrink gives back nothing in the slots that it leaves.
    ShrinkKeepsSlots,
    /// A request that is given up leaves its place to nobody.
    GiveUpSilently,
}

/// The defect planted in a lock, if any. Outside of the models it is nothing and takes no space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(shuttle)]
    pub(crate) fault: Option<Fault>,
}

impl Planted {
    #[cfg(shuttle)]
    pub(crate) fn is(self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    #[cfg(not(shuttle))]
    #[expect(clippy::unused_self, reason = "as in the models")]
    pub(crate) const fn is(self, _: Fault) -> bool {
        false
    }
}
