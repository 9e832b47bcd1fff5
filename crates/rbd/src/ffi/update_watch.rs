//! [`UpdateWatch`]: messages about changes of an image, such as of its size.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::sync::mpsc::Sender;

use super::image::Image;
use super::values::check;

/// A registration with librbd for changes of the image.
#[derive(Debug)]
pub(crate) struct UpdateWatch {
    handle: u64,
    /// Address of the sender that the callback uses.
    sender: *mut c_void,
}

// SAFETY: the sender may move to another thread, and callbacks use it one at a time.
unsafe impl Send for UpdateWatch {}
// SAFETY: a shared reference gives no access to the sender.
unsafe impl Sync for UpdateWatch {}

impl Image {
    /// Makes librbd send to `changed` whenever the image changes, until [`unwatch`](Self::unwatch).
    pub(crate) fn watch(&self, changed: Sender<()>) -> io::Result<UpdateWatch> {
        let (library, image) = self.raw();
        let sender: *mut c_void = Box::into_raw(Box::new(changed)).cast();
        let mut handle = 0;
        // SAFETY: the image is open. `sender` is valid until `unwatch` has returned, or this call
        // has failed.
        let watched = check(unsafe { (library.rbd_update_watch)(image, &raw mut handle, on_update, sender) });
        let watch = UpdateWatch { handle, sender };
        match watched {
            Ok(()) => Ok(watch),
            Err(error) => {
                watch.free();
                Err(error.into())
            }
        }
    }

    /// Ends a watch of this image, waits for a callback that runs, and drops the sender. Returns
    /// false if librbd refuses.
    pub(crate) fn unwatch(&self, watch: UpdateWatch) -> bool {
        let (library, image) = self.raw();
        // SAFETY: the image is open and has registered the watch.
        let ended = check(unsafe { (library.rbd_update_unwatch)(image, watch.handle) });
        // A watch that could not be ended may call once more, so its sender is leaked.
        if ended.is_ok() {
            watch.free();
        }
        ended.is_ok()
    }
}

impl UpdateWatch {
    fn free(self) {
        // SAFETY: the address comes from `Box::into_raw` in `watch`, and no callback uses it any
        // more.
        drop(unsafe { Box::from_raw(self.sender.cast::<Sender<()>>()) });
    }
}

/// Tells the receiver that the image has changed. librbd calls this function on a thread of its
/// own.
unsafe extern "C" fn on_update(sender: *mut c_void) {
    // SAFETY: the address is that of a sender, which lives until the watch has ended.
    let changed = unsafe { &*sender.cast::<Sender<()>>() };
    // The receiver is gone if the device is being closed.
    let _ = changed.send(());
}
