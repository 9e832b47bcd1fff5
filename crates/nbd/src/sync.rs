//! The synchronisation primitives of the hand-over between the threads of a connection: see
//! [`role`](crate::role). Under `--cfg shuttle` the model checker's primitives replace them.

#[cfg(not(shuttle))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic;

#[cfg(shuttle)]
pub(crate) use model::Mutex;
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic;

#[cfg(shuttle)]
mod model {
    use shuttle::sync::MutexGuard;

    /// The model checker's mutex, without poisoning.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}
