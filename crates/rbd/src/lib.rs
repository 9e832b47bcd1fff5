//! A Ceph RBD image as a [`Device`](parext4_device::Device), through librbd.
//!
//! [`ImageUrl`] parses the name of an image, [`RbdDevice::open`] opens it. librados and librbd
//! (version 16 or later) are loaded by the first open, so a program with this crate also runs where
//! Ceph is not installed.
//!
//! # One owner
//! An image with the feature `exclusive-lock` is written by one client at a time. A writable open
//! acquires the lock for as long as the device is open; librbd does not release it when another
//! client asks. If another client holds the lock:
//! - a plain open fails with [`ResourceBusy`](std::io::ErrorKind::ResourceBusy) and names the
//!   client;
//! - [`DeviceOptions::takeover`](parext4_device::DeviceOptions::takeover) breaks the lock.
//!
//! [`Device::lock_owner`](parext4_device::Device::lock_owner) says whether the client watches the
//! image. A client that does not is dead, or has not reached the cluster for half a minute, or is
//! about to watch the image again after a failure.
//!
//! Before a lock is broken, its client is added to the cluster's blocklist. From then on the
//! cluster refuses every request of the client. An object refuses requests in flight from the
//! moment that the new owner uses it. The entry expires after the time of the option
//! `rbd_blocklist_expire_seconds`; if the configuration does not set it, after 30 days. A client
//! that has been stopped for longer than that must not be continued: it could send old writes
//! again.
//!
//! An image without that feature has no lock, and this crate does not keep two clients from writing
//! to it.
//!
//! # A cluster that does not answer
//! Requests fail with [`TimedOut`](std::io::ErrorKind::TimedOut) after the time of the URL's option
//! `reconnect`, 300 seconds by default, and so do all later ones. The cluster may still perform the
//! requests that have timed out. Dropping the device then does not close the image: this client
//! keeps the lock, and its memory and threads, until the process ends.
//!
//! # Capabilities
//! A user needs `profile rbd` for the monitors and for the pool's OSDs. That includes the right to
//! add to the blocklist.

#![deny(unsafe_code)]

mod completions;
mod device;
mod errno;
mod fence;
mod ffi;
mod image_io;
mod image_url;
mod lock;
mod open;
mod queue;
mod reconnect_timeout;
mod size_watch;

pub use device::RbdDevice;
pub use image_url::ImageUrl;
