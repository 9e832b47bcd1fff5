//! The exclusive lock of an image: acquires it, or names the client that holds it.

use std::io;

use parext4_device::LockOwner;
use rustix::io::Errno;

use crate::ffi::{Image, Locker};
use crate::image_url::ImageUrl;

/// Number of attempts to acquire a lock that other clients acquire at the same time.
const ATTEMPTS: usize = 5;
/// Prefix of the cookie that librbd and the kernel store in a lock. The number of the client's
/// watch follows.
const WATCH: &str = "auto ";

/// End of the message for a user whose requests for a takeover are denied.
const NEEDS_PROFILE: &str = "; the user needs the capability `profile rbd` of the monitors";

/// Options for acquiring a lock.
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    /// Whether to break the lock of another client.
    pub(crate) takeover: bool,
    /// The only client whose lock may be broken, by the name that [`owner`] returns. Two standbys
    /// may find the same client dead; the second one must not fence the first.
    pub(crate) takeover_from: Option<String>,
    /// Time in seconds for which a client stays fenced after its lock was broken.
    pub(crate) fence_seconds: u64,
}

/// Acquires the image's lock. With `takeover`, breaks the lock of any client, or only of the client
/// that `takeover_from` names; the cluster refuses all requests of that client before this function
/// returns. Returns whether it has broken a lock.
///
/// Without `takeover`, even the lock of a client that does not watch the image stays: the client
/// may be about to watch it again.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if another client holds the lock; the message names it.
pub(crate) fn acquire(image: &Image, url: &ImageUrl, how: &Acquire) -> io::Result<bool> {
    let mut has_fenced = false;
    for _ in 0..ATTEMPTS {
        if let Some(locker) = image.locker()? {
            if !locker.cookie.starts_with(WATCH) {
                let message = format!("locked by hand by {}; `rbd lock rm` removes the lock", name(&locker));
                return Err(url.error(io::ErrorKind::ResourceBusy, message));
            }
            let is_other = how.takeover_from.as_ref().is_some_and(|from| *from != name(&locker));
            if is_other || !how.takeover {
                return Err(busy(url, &locker, is_alive(image, &locker)?));
            }
            break_lock(image, url, &locker, how.fence_seconds)?;
            log::warn!("{url}: {} is fenced, and its lock is broken", name(&locker));
            has_fenced = true;
        }
        match image.acquire_lock() {
            Ok(()) => return Ok(has_fenced),
            // Another client acquired the lock after this one had read its holder.
            Err(Errno::ROFS | Errno::BUSY | Errno::AGAIN) => {}
            Err(error) => return Err(cannot(url, "acquire the exclusive lock", error.into())),
        }
    }
    match image.locker()? {
        Some(locker) => Err(busy(url, &locker, is_alive(image, &locker)?)),
        None => Err(url.error(io::ErrorKind::ResourceBusy, "other clients acquire the lock all the time")),
    }
}

/// Returns the holder of the image's lock.
pub(crate) fn owner(image: &Image) -> io::Result<Option<LockOwner>> {
    let Some(locker) = image.locker()? else { return Ok(None) };
    let alive = is_alive(image, &locker)?;
    Ok(Some(LockOwner { name: name(&locker), alive }))
}

/// Fails if the user has no right to add clients to the cluster's blocklist.
pub(crate) fn check_fence(image: &Image) -> io::Result<()> {
    // The monitors check the right first, and then refuse the address. The capability `profile rbd`
    // allows addresses of this form.
    match image.blocklist("none/0", 1) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let message = format!("the user has no right to fence clients{NEEDS_PROFILE}");
            Err(io::Error::new(error.kind(), message))
        }
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
        _ => Ok(()),
    }
}

/// Returns whether the holder of the lock still watches the image. A lock made by hand has no
/// watch, and counts as alive.
fn is_alive(image: &Image, locker: &Locker) -> io::Result<bool> {
    let Some(watch) = locker.cookie.strip_prefix(WATCH) else { return Ok(true) };
    let watchers = image.watchers()?;
    Ok(watchers.iter().any(|(client, cookie)| *client == locker.client && cookie.to_string() == watch))
}

/// Fences a client and breaks its lock.
fn break_lock(image: &Image, url: &ImageUrl, locker: &Locker, seconds: u64) -> io::Result<()> {
    // The caller chooses the time, which librbd cannot (librbd 16 sends a text where monitors
    // expect a number).
    let name = name(locker);
    let fenced = image.blocklist(&locker.address, seconds);
    fenced.map_err(|error| cannot(url, &format!("fence {name}"), error))?;
    image.wait_for_blocklist().map_err(|error| cannot(url, "read the cluster's blocklist", error))?;
    match image.break_lock(locker) {
        // The lock was released, or has another holder, which the next attempt notices.
        Err(error) if !is_gone(&error) => Err(cannot(url, &format!("break the lock of {name}"), error)),
        _ => Ok(()),
    }
}

fn is_gone(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOENT | Errno::BUSY | Errno::AGAIN))
}

fn cannot(url: &ImageUrl, what: &str, error: io::Error) -> io::Error {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let hint = if denied { NEEDS_PROFILE } else { "" };
    url.error(error.kind(), format!("cannot {what}: {error}{hint}"))
}

fn busy(url: &ImageUrl, locker: &Locker, is_alive: bool) -> io::Error {
    let heard =
        if is_alive { "" } else { ", and the cluster does not hear from it; `parext4 takeover` fences it" };
    let message = format!("in use: {} holds the image's exclusive lock{heard}", name(locker));
    url.error(io::ErrorKind::ResourceBusy, message)
}

fn name(locker: &Locker) -> String {
    format!("{} at {}", locker.client, locker.address)
}
