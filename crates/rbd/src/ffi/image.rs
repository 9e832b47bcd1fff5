//! [`Image`]: an open image, and the calls that describe and lock it.
//!
//! The methods block on the cluster. Requests for the data of an image are in `transfer`.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use rustix::io::Errno;

use super::cluster::Cluster;
use super::library::{ConfigOption, Handle, ImageInfo, Library, Watcher};
use super::values::{c_string, check, pointer, text};

/// `RBD_LOCK_MODE_EXCLUSIVE`.
const EXCLUSIVE: c_int = 0;
/// Name of the exclusive lock on the object with the image's metadata (`RBD_LOCK_NAME`).
const LOCK: &CStr = c"rbd_lock";
/// Most bytes of a list of strings that librbd stores.
const MAX_TEXT: usize = 4096;
/// Most options of an image that are listed. librbd has about a hundred.
const MAX_OPTIONS: usize = 1024;
/// Most watchers of an image that are listed.
const MAX_WATCHERS: usize = 1024;

/// An open image.
pub(crate) struct Image {
    // The cluster is dropped after the image is closed.
    cluster: Cluster,
    image: Handle,
}

// SAFETY: librbd locks its own state; images may be used by several threads at the same time.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

/// The lock of an image, as its header object lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Locker {
    /// The name of the client, such as `client.4123`.
    pub(crate) client: String,
    /// The cookie, which the client chose. librbd and the kernel write `auto` and the number of the
    /// client's watch.
    pub(crate) cookie: String,
    pub(crate) address: String,
}

impl Image {
    /// Opens an image, or a snapshot of it. If that fails, also returns the cluster.
    pub(crate) fn open(
        cluster: Cluster,
        image: &str,
        snapshot: Option<&str>,
        read_only: bool,
    ) -> Result<Self, (io::Error, Cluster)> {
        match open(&cluster, image, snapshot, read_only) {
            Ok(image) => Ok(Self { cluster, image }),
            Err(error) => Err((error, cluster)),
        }
    }

    /// Returns the connection to the cluster.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the library and the handle of the image.
    pub(super) fn raw(&self) -> (&'static Library, Handle) {
        (self.library(), self.image)
    }

    fn library(&self) -> &'static Library {
        self.cluster.library
    }

    /// Calls a function that stores one number.
    fn number(&self, get: unsafe extern "C" fn(Handle, *mut u64) -> c_int) -> io::Result<u64> {
        let mut value = 0;
        // SAFETY: the image is open, and `get` is a function of `Library` that stores one number.
        check(unsafe { get(self.image, &raw mut value) })?;
        Ok(value)
    }

    /// Returns the present size in bytes.
    pub(crate) fn size(&self) -> io::Result<u64> {
        self.number(self.library().rbd_get_size)
    }

    /// Returns the features as a set of bits.
    pub(crate) fn features(&self) -> io::Result<u64> {
        self.number(self.library().rbd_get_features)
    }

    /// Returns the size in bytes of the pieces of the image that are contiguous in one object.
    pub(crate) fn piece(&self) -> io::Result<u64> {
        let mut info = MaybeUninit::<ImageInfo>::zeroed();
        // SAFETY: the image is open, and `info` has the given length.
        check(unsafe { (self.library().rbd_stat)(self.image, info.as_mut_ptr(), size_of::<ImageInfo>()) })?;
        // SAFETY: all fields are numbers, and zeros are valid for fields that librbd did not store.
        let object = unsafe { info.assume_init() }.object_size;
        let stripes = self.number(self.library().rbd_get_stripe_count)?;
        let unit = self.number(self.library().rbd_get_stripe_unit)?;
        Ok(if stripes > 1 { unit.min(object) } else { object })
    }

    /// Returns the value of an option for this image: that of the image, or else of its pool, or
    /// else of this client.
    pub(crate) fn option(&self, name: &CStr) -> io::Result<Option<String>> {
        let mut options: Vec<ConfigOption> = Vec::with_capacity(MAX_OPTIONS);
        let list = options.as_mut_ptr();
        let mut count = MAX_OPTIONS as c_int;
        // SAFETY: the image is open, and the list has room for `count` options.
        check(unsafe { (self.library().rbd_config_image_list)(self.image, list, &raw mut count) })?;
        // SAFETY: librbd has stored `count` options, at most as many as there is room for.
        unsafe { options.set_len((count as usize).min(MAX_OPTIONS)) };
        // SAFETY: names and values are strings of librbd until they are cleaned up.
        let string = |text| unsafe { CStr::from_ptr(text) };
        let found = options.iter().find(|option| string(option.name) == name);
        let value = found.map(|option| string(option.value).to_string_lossy().into_owned());
        // SAFETY: the list comes from `rbd_config_image_list` and is cleaned up once.
        unsafe { (self.library().rbd_config_image_list_cleanup)(list, count) };
        Ok(value)
    }

    /// Acquires the exclusive lock, and keeps it when another client asks for it.
    pub(crate) fn acquire_lock(&self) -> Result<(), Errno> {
        // SAFETY: the image is open.
        check(unsafe { (self.library().rbd_lock_acquire)(self.image, EXCLUSIVE) })
    }

    /// Breaks a lock, whose holder the caller has fenced. librbd's own function would fence the
    /// holder again, which takes the monitors a second by default.
    pub(crate) fn break_lock(&self, locker: &Locker) -> io::Result<()> {
        let (header, client, cookie) = (self.header()?, c_string(&locker.client)?, c_string(&locker.cookie)?);
        // SAFETY: the pool is open and the names end with a zero byte.
        Ok(check(unsafe {
            (self.library().rados_break_lock)(
                self.cluster.pool,
                header.as_ptr(),
                LOCK.as_ptr(),
                client.as_ptr(),
                cookie.as_ptr(),
            )
        })?)
    }

    /// Adds the client at `address` to the cluster's blocklist for `seconds`.
    pub(crate) fn blocklist(&self, address: &str, seconds: u64) -> io::Result<()> {
        // The address comes from librbd, so it contains no quotes.
        let command = format!(
            r#"{{"prefix":"osd blocklist","blocklistop":"add","addr":"{address}","expire":{seconds}.0}}"#
        );
        self.cluster.command(&command)
    }

    /// Blocks until this client knows the present blocklist. Every object that it uses afterwards
    /// refuses the clients on that list, including their requests in flight.
    pub(crate) fn wait_for_blocklist(&self) -> io::Result<()> {
        self.cluster.wait_for_map()
    }

    /// Returns the name of the object that has the image's metadata.
    fn header(&self) -> io::Result<CString> {
        let mut id = [0u8; MAX_TEXT];
        // SAFETY: the image is open, and `id` has the given length.
        check(unsafe { (self.library().rbd_get_id)(self.image, id.as_mut_ptr().cast(), id.len()) })?;
        c_string(&format!("rbd_header.{}", text(&id)))
    }

    /// Reads the holder of the lock from the cluster. `None` if no client holds the lock. librbd's
    /// own function returns the holder at the time of the open.
    pub(crate) fn locker(&self) -> io::Result<Option<Locker>> {
        let header = self.header()?;
        let mut exclusive = 0;
        let mut texts = [[0u8; MAX_TEXT]; 4];
        let [tag, clients, cookies, addresses] = &mut texts;
        let mut lens = [MAX_TEXT; 4];
        let [tag_len, clients_len, cookies_len, addresses_len] = &mut lens;
        // SAFETY: the pool is open, the names end with a zero byte, and each buffer has the length
        // that follows it. librados separates strings by zero bytes.
        let count = unsafe {
            (self.library().rados_list_lockers)(
                self.cluster.pool,
                header.as_ptr(),
                LOCK.as_ptr(),
                &raw mut exclusive,
                tag.as_mut_ptr().cast(),
                tag_len,
                clients.as_mut_ptr().cast(),
                clients_len,
                cookies.as_mut_ptr().cast(),
                cookies_len,
                addresses.as_mut_ptr().cast(),
                addresses_len,
            )
        };
        check(c_int::try_from(count).unwrap_or(c_int::MIN))?;
        let locker =
            Locker { client: text(clients), cookie: text(cookies), address: untyped(&text(addresses)) };
        Ok((count > 0).then_some(locker))
    }

    /// Returns the clients that watch the image, such as `client.4123`, with the numbers of their
    /// watches.
    pub(crate) fn watchers(&self) -> io::Result<Vec<(String, u64)>> {
        let mut watchers: Vec<Watcher> = Vec::with_capacity(MAX_WATCHERS);
        let mut count = MAX_WATCHERS;
        let list = watchers.as_mut_ptr();
        // SAFETY: the image is open, and the list has room for `count` watchers.
        check(unsafe { (self.library().rbd_watchers_list)(self.image, list, &raw mut count) })?;
        // SAFETY: librbd has stored `count` watchers, at most as many as there is room for.
        unsafe { watchers.set_len(count.min(MAX_WATCHERS)) };
        let named =
            watchers.iter().map(|watcher| (format!("client.{}", watcher.id), watcher.cookie)).collect();
        // SAFETY: the list comes from `rbd_watchers_list` and is cleaned up once.
        unsafe { (self.library().rbd_watchers_list_cleanup)(list, count) };
        Ok(named)
    }
}

fn open(cluster: &Cluster, image: &str, snapshot: Option<&str>, read_only: bool) -> io::Result<Handle> {
    let name = c_string(image)?;
    let snapshot = snapshot.map(c_string).transpose()?;
    let library = cluster.library;
    let open = if read_only { library.rbd_open_read_only } else { library.rbd_open };
    let mut image = null_mut();
    // SAFETY: the pool is open, the names end with a zero byte, `image` receives the handle.
    check(unsafe { open(cluster.pool, name.as_ptr(), &raw mut image, pointer(snapshot.as_deref())) })?;
    Ok(image)
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the image is open, and no request is in flight: each queue drains itself, and
        // keeps the device.
        let code = unsafe { (self.library().rbd_close)(self.image) };
        if let Err(error) = check(code) {
            log::warn!("closing the image: {error}");
        }
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").finish_non_exhaustive()
    }
}

/// Returns an address without its type, as librbd and blocklists have it: `v1:127.0.0.1:0/7`
/// becomes `127.0.0.1:0/7`.
fn untyped(address: &str) -> String {
    let rest = ["v1:", "v2:", "any:"].iter().find_map(|kind| address.strip_prefix(kind));
    rest.unwrap_or(address).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lose_their_type() {
        for (address, want) in [
            ("v1:127.0.0.1:0/7", "127.0.0.1:0/7"),
            ("127.0.0.1:0/7", "127.0.0.1:0/7"),
            ("v2:[::1]:0/7", "[::1]:0/7"),
        ] {
            assert_eq!(untyped(address), want);
        }
    }
}
