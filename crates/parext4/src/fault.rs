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
}

#[cfg(shuttle)]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Takes away a guard in the whole process.
#[cfg(shuttle)]
pub fn plant(fault: Fault) {
    PLANTED.store(fault as u8, std::sync::atomic::Ordering::SeqCst);
}

/// Whether `fault` is planted.
#[cfg(shuttle)]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::SeqCst) == fault as u8
}

/// Whether `fault` is planted.
#[cfg(not(shuttle))]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}
