//! The functions of librados and librbd, loaded when the first image is opened.
//!
//! This module declares names and types. Its sibling modules call the functions.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::sync::OnceLock;

/// Debian packages of the libraries, for messages.
const INSTALL: &str = "install Ceph's client library (Debian: apt-get install librbd1)";

/// A handle of the libraries: a connection, a pool, an image, a completion.
pub(crate) type Handle = *mut c_void;

/// Callback of librbd for a completed request, with the completion and the address that the request
/// names.
pub(crate) type OnComplete = unsafe extern "C" fn(Handle, *mut c_void);
/// Callback of librbd for a changed image, with the address that the watch names.
pub(crate) type OnUpdate = unsafe extern "C" fn(*mut c_void);

/// `rbd_image_info_t`.
#[repr(C)]
pub(crate) struct ImageInfo {
    pub(crate) size: u64,
    pub(crate) object_size: u64,
    objects: u64,
    order: c_int,
    block_name_prefix: [c_char; 24],
    parent_pool: i64,
    parent_name: [c_char; 96],
}

/// `rbd_image_watcher_t`.
#[repr(C)]
pub(crate) struct Watcher {
    address: *mut c_char,
    pub(crate) id: i64,
    pub(crate) cookie: u64,
}

/// `rbd_config_option_t`.
#[repr(C)]
pub(crate) struct ConfigOption {
    pub(crate) name: *mut c_char,
    pub(crate) value: *mut c_char,
    source: c_int,
}

/// Declares [`Library`] with one pointer for each function, and the code that loads it.
macro_rules! library {
    ($($file:literal { $($name:ident($($arg:ty),*) -> $result:ty;)+ })+) => {
        /// Pointers to the functions, with the names and types of `librados.h` and `rbd/librbd.h`.
        pub(crate) struct Library {
            $($(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> $result,)+)+
        }

        fn load() -> io::Result<Library> {
            $(let library = open($file)?;
            $(
                let address = symbol(library, $file, concat!(stringify!($name), "\0"))?;
                // SAFETY: the library defines the function with this name and type since version
                // 16, and stays loaded.
                let $name = unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $result>(address)
                };
            )+)+
            Ok(Library { $($($name,)+)+ })
        }
    };
}

library! {
    c"librados.so.2" {
        rados_create(*mut Handle, *const c_char) -> c_int;
        rados_conf_read_file(Handle, *const c_char) -> c_int;
        rados_conf_parse_env(Handle, *const c_char) -> c_int;
        rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
        rados_conf_get(Handle, *const c_char, *mut c_char, usize) -> c_int;
        rados_connect(Handle) -> c_int;
        rados_shutdown(Handle) -> ();
        rados_wait_for_latest_osdmap(Handle) -> c_int;
        rados_mon_command(Handle, *const *const c_char, usize, *const c_char, usize, *mut *mut c_char, *mut usize,
            *mut *mut c_char, *mut usize) -> c_int;
        rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
        rados_ioctx_set_namespace(Handle, *const c_char) -> ();
        rados_ioctx_destroy(Handle) -> ();
        rados_break_lock(Handle, *const c_char, *const c_char, *const c_char, *const c_char) -> c_int;
        rados_list_lockers(Handle, *const c_char, *const c_char, *mut c_int, *mut c_char, *mut usize, *mut c_char,
            *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize) -> isize;
    }
    c"librbd.so.1" {
        rbd_image_options_create(*mut Handle) -> ();
        rbd_image_options_destroy(Handle) -> ();
        rbd_image_options_set_uint64(Handle, c_int, u64) -> c_int;
        rbd_namespace_exists(Handle, *const c_char, *mut bool) -> c_int;
        rbd_create4(Handle, *const c_char, u64, Handle) -> c_int;
        rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        rbd_close(Handle) -> c_int;
        rbd_stat(Handle, *mut ImageInfo, usize) -> c_int;
        rbd_get_size(Handle, *mut u64) -> c_int;
        rbd_get_features(Handle, *mut u64) -> c_int;
        rbd_get_stripe_unit(Handle, *mut u64) -> c_int;
        rbd_get_stripe_count(Handle, *mut u64) -> c_int;
        rbd_lock_acquire(Handle, c_int) -> c_int;
        rbd_get_id(Handle, *mut c_char, usize) -> c_int;
        rbd_watchers_list(Handle, *mut Watcher, *mut usize) -> c_int;
        rbd_watchers_list_cleanup(*mut Watcher, usize) -> ();
        rbd_config_image_list(Handle, *mut ConfigOption, *mut c_int) -> c_int;
        rbd_config_image_list_cleanup(*mut ConfigOption, c_int) -> ();
        rbd_update_watch(Handle, *mut u64, OnUpdate, *mut c_void) -> c_int;
        rbd_update_unwatch(Handle, u64) -> c_int;
        rbd_aio_create_completion(*mut c_void, Option<OnComplete>, *mut Handle) -> c_int;
        rbd_aio_wait_for_complete(Handle) -> c_int;
        rbd_aio_get_return_value(Handle) -> isize;
        rbd_aio_release(Handle) -> ();
        rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
        rbd_aio_readv(Handle, *const c_void, c_int, u64, Handle) -> c_int;
        rbd_aio_write(Handle, u64, usize, *const c_char, Handle) -> c_int;
        rbd_aio_writev(Handle, *const c_void, c_int, u64, Handle) -> c_int;
        rbd_aio_discard(Handle, u64, u64, Handle) -> c_int;
        rbd_aio_flush(Handle, Handle) -> c_int;
    }
}

impl Library {
    /// Returns the libraries. The first successful call loads them; they are never unloaded.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if a library or a function is missing; the message names the
    /// package.
    pub(crate) fn get() -> io::Result<&'static Self> {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LIBRARY.get() {
            return Ok(library);
        }
        let library = load()?;
        Ok(LIBRARY.get_or_init(|| library))
    }
}

fn open(file: &CStr) -> io::Result<Handle> {
    // SAFETY: the name ends with a zero byte. The library's constructors only register classes and
    // options of Ceph.
    let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() { Err(missing(file)) } else { Ok(library) }
}

/// Returns the address of a function; `name` ends with a zero byte.
fn symbol(library: Handle, file: &CStr, name: &str) -> io::Result<*mut c_void> {
    // SAFETY: `library` comes from `dlopen` and is never closed; the name ends with a zero byte.
    let address = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
    if address.is_null() { Err(missing(file)) } else { Ok(address) }
}

/// Returns the error of a library that cannot be loaded, or has no such function.
fn missing(file: &CStr) -> io::Error {
    // SAFETY: `dlerror` returns null or a string of this thread that lives until its next call of
    // these functions.
    let why = unsafe {
        let message = libc::dlerror();
        if message.is_null() { String::new() } else { CStr::from_ptr(message).to_string_lossy().into_owned() }
    };
    let message = format!("cannot load {}: {INSTALL}: {why}", file.to_string_lossy());
    io::Error::new(io::ErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_reported_with_the_package_to_install() {
        let error = open(c"libnone.so.9").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        let start =
            "cannot load libnone.so.9: install Ceph's client library (Debian: apt-get install librbd1)";
        assert!(error.to_string().starts_with(start), "{error}");
    }

    #[test]
    fn the_structures_have_the_sizes_of_librbd() {
        assert_eq!((size_of::<ImageInfo>(), size_of::<Watcher>(), size_of::<ConfigOption>()), (160, 24, 24));
    }
}
