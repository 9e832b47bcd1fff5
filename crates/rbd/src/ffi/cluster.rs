//! [`Cluster`]: a connection to a cluster as one client, with a pool opened in it.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::io;
use std::ptr::{null, null_mut};

use rustix::io::Errno;

use super::library::{Handle, Library};
use super::values::{c_string, check, pointer, text};
use crate::image_url::ImageUrl;

/// `RBD_IMAGE_OPTION_FEATURES_SET`: features that a new image has in addition to the defaults of
/// the configuration.
const FEATURES_SET: c_int = 8;
/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
pub(crate) const EXCLUSIVE_LOCK: u64 = 1 << 2;
/// Longest value of an option, bytes.
const MAX_OPTION: usize = 4096;

/// A connection to a cluster as one client, with a pool opened in it.
pub(crate) struct Cluster {
    pub(super) library: &'static Library,
    pub(super) cluster: Handle,
    pub(super) pool: Handle,
}

// SAFETY: librados locks its own state; connections and pools may be used by several threads at the
// same time.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// Creates an unconnected client of the user `id`, and reads its configuration.
    ///
    /// # Errors
    /// The libraries are missing, or the configuration cannot be read.
    pub(crate) fn configure(id: Option<&str>, conf: Option<&str>) -> io::Result<Self> {
        let library = Library::get()?;
        let (id, conf) = (id.map(c_string).transpose()?, conf.map(c_string).transpose()?);
        let mut cluster = null_mut();
        // SAFETY: `cluster` receives the handle; `id` is null or ends with a zero byte.
        check(unsafe { (library.rados_create)(&raw mut cluster, pointer(id.as_deref())) })?;
        let this = Self { library, cluster, pool: null_mut() };
        // SAFETY: the handle is valid; the path is null or ends with a zero byte.
        check(unsafe { (library.rados_conf_read_file)(cluster, pointer(conf.as_deref())) })?;
        // SAFETY: the handle is valid. A null name stands for CEPH_ARGS.
        check(unsafe { (library.rados_conf_parse_env)(cluster, null()) })?;
        Ok(this)
    }

    /// Sets an option of the configuration.
    pub(crate) fn set(&self, name: &CStr, value: &str) -> io::Result<()> {
        let value = c_string(value)?;
        // SAFETY: the handle is valid and both strings end with a zero byte.
        Ok(check(unsafe { (self.library.rados_conf_set)(self.cluster, name.as_ptr(), value.as_ptr()) })?)
    }

    /// Returns an option of the configuration.
    pub(crate) fn get(&self, name: &CStr) -> io::Result<String> {
        let mut value = [0u8; MAX_OPTION];
        let out = value.as_mut_ptr().cast();
        // SAFETY: the handle is valid, the name ends with a zero byte, and `value` has the given
        // length.
        check(unsafe { (self.library.rados_conf_get)(self.cluster, name.as_ptr(), out, value.len()) })?;
        Ok(text(&value))
    }

    /// Connects to the cluster.
    pub(crate) fn connect(&self) -> Result<(), Errno> {
        // SAFETY: the handle is valid.
        check(unsafe { (self.library.rados_connect)(self.cluster) })
    }

    /// Sends a command in JSON to the monitors, and drops their output.
    pub(super) fn command(&self, command: &str) -> io::Result<()> {
        let command = c_string(command)?;
        // SAFETY: the connection is open, and the array has one string that ends with a zero byte.
        // Null stands for no input, and for output that is not wanted.
        Ok(check(unsafe {
            (self.library.rados_mon_command)(
                self.cluster,
                &command.as_ptr(),
                1,
                null(),
                0,
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
            )
        })?)
    }

    /// Blocks until this client has the latest map of the cluster's OSDs, which contains its
    /// blocklist.
    pub(super) fn wait_for_map(&self) -> io::Result<()> {
        // SAFETY: the connection is open.
        Ok(check(unsafe { (self.library.rados_wait_for_latest_osdmap)(self.cluster) })?)
    }

    /// Opens the pool and the namespace of `url`.
    pub(crate) fn open_pool(&mut self, url: &ImageUrl) -> io::Result<()> {
        let pool = c_string(&url.pool)?;
        // SAFETY: the connection is open, the name ends with a zero byte, `self.pool` receives the
        // handle.
        check(unsafe { (self.library.rados_ioctx_create)(self.cluster, pool.as_ptr(), &raw mut self.pool) })?;
        if let Some(namespace) = &url.namespace {
            let namespace = c_string(namespace)?;
            // SAFETY: the handle is valid and the name ends with a zero byte.
            unsafe { (self.library.rados_ioctx_set_namespace)(self.pool, namespace.as_ptr()) };
        }
        Ok(())
    }

    /// Returns whether the pool has a namespace.
    pub(crate) fn has_namespace(&self, name: &str) -> io::Result<bool> {
        let name = c_string(name)?;
        let mut exists = false;
        // SAFETY: the pool is open, the name ends with a zero byte, `exists` receives the answer.
        check(unsafe { (self.library.rbd_namespace_exists)(self.pool, name.as_ptr(), &raw mut exists) })?;
        Ok(exists)
    }

    /// Creates an image of `size` bytes with the configuration's features and an exclusive lock.
    pub(crate) fn create(&self, name: &str, size: u64) -> io::Result<()> {
        let name = c_string(name)?;
        let mut options = null_mut();
        // SAFETY: `options` receives a handle, which is destroyed below. The pool is open; the name
        // ends with a zero byte.
        let code = unsafe {
            (self.library.rbd_image_options_create)(&raw mut options);
            let code = (self.library.rbd_image_options_set_uint64)(options, FEATURES_SET, EXCLUSIVE_LOCK);
            let code = if code < 0 {
                code
            } else {
                (self.library.rbd_create4)(self.pool, name.as_ptr(), size, options)
            };
            (self.library.rbd_image_options_destroy)(options);
            code
        };
        Ok(check(code)?)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: both handles are valid, or the pool is null because it was not opened. An image
        // in the pool is closed by now.
        unsafe {
            if !self.pool.is_null() {
                (self.library.rados_ioctx_destroy)(self.pool);
            }
            (self.library.rados_shutdown)(self.cluster);
        }
    }
}
