//! The model checker's primitives with the interfaces of `parking_lot` and `crossbeam_channel`. Only under
//! `--cfg shuttle`.

use std::fmt;
use std::sync::{Arc, PoisonError};

pub(crate) use shuttle::sync::atomic;
use shuttle::sync::mpsc::{self, SendError};
pub(crate) use shuttle::thread::{Builder, JoinHandle};

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Sender<T>(mpsc::Sender<T>);

/// The receiving end of a channel, for any number of threads: one waits for the next message, the others for that thread.
pub(crate) struct Receiver<T>(Arc<Mutex<mpsc::Receiver<T>>>);

pub(crate) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel();
    (Sender(sender), Receiver(Arc::new(Mutex::new(receiver))))
}

impl<T> Sender<T> {
    pub(crate) fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.0.send(message)
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Iterator for Receiver<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.lock().recv().ok()
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}
