//! Opening an image: connects, creates the image if the options ask for it, acquires its lock, and
//! reads its geometry.

use std::ffi::CStr;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;

use parext4_device::{DeviceOptions, Sharing};
use rustix::io::Errno;

use crate::fence::Fence;
use crate::ffi::{Cluster, EXCLUSIVE_LOCK, Image};
use crate::image_io::ImageIo;
use crate::image_url::ImageUrl;
use crate::lock::{self, Acquire};
use crate::reconnect_timeout::ReconnectTimeout;
use crate::size_watch::SizeWatch;

/// Smallest unit of access, bytes.
pub(crate) const SECTOR: u64 = 512;
/// Options of librbd that this crate relies on: a flush must reach the cluster, and a broken lock
/// must fence its client.
const REQUIRED: [(&CStr, &str); 2] = [(CACHE, "false"), (c"rbd_blocklist_on_break_lock", "true")];
/// Option: whether librbd has a cache for the image. The configuration of the image or its pool
/// overrides what the client sets.
const CACHE: &CStr = c"rbd_cache";
/// Option: seconds for which a client stays fenced. Zero means the monitors' default of an hour.
const FENCE: &CStr = c"rbd_blocklist_expire_seconds";
/// Replaces zero in [`FENCE`]: 30 days. A machine may be suspended for longer than an hour.
const FENCE_SECONDS: u64 = 30 * 24 * 3600;
/// Option: seconds to wait for monitors.
const CONNECT: &CStr = c"client_mount_timeout";
/// Default of [`CONNECT`], and the value that replaces it.
const CONNECT_SECONDS: (f64, &str) = (300.0, "30");

/// An open image and the geometry of the volume in it.
pub(crate) struct Opened {
    pub(crate) io: ImageIo,
    /// Size of the volume, bytes.
    pub(crate) size: u64,
    pub(crate) object_size: Option<NonZeroU64>,
    pub(crate) sharing: Sharing,
    /// Whether the lock of another client was broken.
    pub(crate) has_fenced: bool,
}

/// Opens the image `url`.
pub(crate) fn open(url: &ImageUrl, options: &DeviceOptions) -> io::Result<Opened> {
    if url.snapshot.is_some() && !options.read_only {
        return Err(
            url.error(io::ErrorKind::ReadOnlyFilesystem, "a snapshot can only be read; open it read-only")
        );
    }
    let (cluster, reconnect_timeout) = connect(url)?;
    let fence_seconds = fence_seconds(&cluster)?;
    let image = Arc::new(open_image(cluster, url, options)?);
    refuse_cache(&image, url)?;
    let (takeover, takeover_from) = (options.takeover, options.takeover_from.clone());
    let how = Acquire { takeover, takeover_from, fence_seconds };
    let (sharing, has_fenced) = share(&image, url, options, &how)?;
    let image_size = image.size()?;
    let size = volume_size(url, options, image_size)?;
    let piece = NonZeroU64::new(image.piece()?).filter(|piece| options.offset.is_multiple_of(piece.get()));
    let size_watch = SizeWatch::start(&image, image_size, url.to_string(), options.read_only)?;
    let (base, read_only) = (options.offset, options.read_only);
    reconnect_timeout.apply(image.cluster())?;
    let fence = Arc::new(Fence::new(reconnect_timeout.seconds()));
    let io = ImageIo { size_watch, image, fence, base, read_only };
    Ok(Opened { io, size, object_size: piece, sharing, has_fenced })
}

/// Connects to the cluster and opens the pool of `url`.
fn connect(url: &ImageUrl) -> io::Result<(Cluster, ReconnectTimeout)> {
    let mut cluster = Cluster::configure(url.id.as_deref(), url.conf.as_deref()).map_err(|error| {
        let conf = url.conf.as_deref().unwrap_or("the configuration of Ceph");
        match error.kind() {
            io::ErrorKind::Unsupported => url.error(error.kind(), error),
            kind => url.error(kind, format!("cannot read {conf}: {error}; `?conf=PATH` names another one")),
        }
    })?;
    for (name, value) in REQUIRED {
        cluster.set(name, value)?;
    }
    if cluster.get(CONNECT)?.parse() == Ok(CONNECT_SECONDS.0) {
        cluster.set(CONNECT, CONNECT_SECONDS.1)?;
    }
    let reconnect_timeout = ReconnectTimeout::of(&cluster, url)?;
    if let Some(keyring) = &url.keyring {
        cluster.set(c"keyring", keyring)?;
    }
    cluster.connect().map_err(|error| {
        let hint = match error {
            Errno::NOENT | Errno::ACCESS | Errno::PERM => no_key(&cluster),
            Errno::TIMEDOUT => "; no monitor answers".to_owned(),
            _ => String::new(),
        };
        let error = io::Error::from(error);
        url.error(error.kind(), format!("cannot connect to the cluster: {error}{hint}"))
    })?;
    let pool = cluster.open_pool(url);
    pool.map_err(|error| url.error(error.kind(), format!("cannot open the pool {:?}: {error}", url.pool)))?;
    Ok((cluster, reconnect_timeout))
}

/// Returns the end of a message about a key that the cluster refuses: the keyrings that were
/// searched.
fn no_key(cluster: &Cluster) -> String {
    let keyrings = cluster.get(c"keyring").unwrap_or_default();
    let paths = keyrings.split([',', ';', ' ']).filter(|path| !path.is_empty());
    match paths.collect::<Vec<_>>()[..] {
        [] => "; the configuration names no keyring".to_owned(),
        [path] => format!("; is the user's key in {path}?"),
        ref paths => format!("; is the user's key in one of {}?", paths.join(", ")),
    }
}

/// Returns the time for which a client stays fenced, and makes librbd use the monitors' default.
fn fence_seconds(cluster: &Cluster) -> io::Result<u64> {
    let seconds = cluster.get(FENCE)?.parse().unwrap_or(0);
    cluster.set(FENCE, "0")?;
    Ok(if seconds == 0 { FENCE_SECONDS } else { seconds })
}

/// Opens the image. Creates it first if the options say so and it does not exist.
fn open_image(cluster: Cluster, url: &ImageUrl, options: &DeviceOptions) -> io::Result<Image> {
    if let Some(size) = options.create {
        match cluster.create(&url.image, size) {
            Ok(()) => log::info!("{url}: created with {size} bytes"),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing(cluster, url)),
            Err(error) => return Err(url.error(error.kind(), format!("cannot create the image: {error}"))),
        }
    }
    let opened = Image::open(cluster, &url.image, url.snapshot.as_deref(), options.read_only);
    let image = opened.map_err(|(error, cluster)| match error.kind() {
        io::ErrorKind::NotFound => missing(cluster, url),
        kind => url.error(kind, format!("cannot open the image: {error}")),
    })?;
    if let Some(size) = options.create {
        let found = image.size()?;
        if found < size {
            let message =
                format!("the image exists with {found} bytes, fewer than {size}; `rbd resize` adds some");
            return Err(url.error(io::ErrorKind::AlreadyExists, message));
        }
    }
    Ok(image)
}

/// Returns the error that says which part of the name does not exist.
fn missing(cluster: Cluster, url: &ImageUrl) -> io::Error {
    let kind = io::ErrorKind::NotFound;
    if let Some(namespace) = &url.namespace
        && matches!(cluster.has_namespace(namespace), Ok(false))
    {
        let pool = &url.pool;
        let message = format!(
            "the pool has no namespace {namespace:?}; `rbd namespace create {pool}/{namespace}` makes one"
        );
        return url.error(kind, message);
    }
    let image = url.spec();
    if let Some(snapshot) = &url.snapshot
        && Image::open(cluster, &url.image, None, true).is_ok()
    {
        let message =
            format!("the image has no snapshot {snapshot:?}; `rbd snap ls {image}` lists the ones it has");
        return url.error(kind, message);
    }
    url.error(kind, "no such image; `parext4 mkfs --size` creates one")
}

/// Fails if librbd has a cache for the image. Reads would return old bytes of a block that another
/// client has changed, such as the MMP block, and writes would complete before the cluster has
/// them.
fn refuse_cache(image: &Image, url: &ImageUrl) -> io::Result<()> {
    // A snapshot does not change.
    if url.snapshot.is_some() || image.option(CACHE)?.is_none_or(|value| value == "false") {
        return Ok(());
    }
    let message = format!(
        "the configuration of the image or of its pool turns librbd's cache on, which would hide what other machines write; \
         `rbd config image set {} rbd_cache false` turns it off for this image",
        url.spec()
    );
    Err(url.error(io::ErrorKind::Unsupported, message))
}

/// Acquires the lock of an image that is opened for writing. Returns what keeps other clients from
/// writing, and whether the lock of another client was broken.
fn share(
    image: &Image,
    url: &ImageUrl,
    options: &DeviceOptions,
    how: &Acquire,
) -> io::Result<(Sharing, bool)> {
    if url.snapshot.is_some() {
        return Ok((Sharing::Immutable, false));
    }
    if options.read_only || !options.lock {
        return Ok((Sharing::Unfenced, false));
    }
    if image.features()? & EXCLUSIVE_LOCK == 0 {
        log::warn!(
            "{url}: the image has no exclusive lock, so nothing on the cluster keeps two clients from writing; \
             `rbd feature enable` adds exclusive-lock"
        );
        return Ok((Sharing::Unfenced, false));
    }
    Ok((Sharing::Fenced, lock::acquire(image, url, how)?))
}

/// Returns the size of the volume at `options.offset`, in bytes.
fn volume_size(url: &ImageUrl, options: &DeviceOptions, image_size: u64) -> io::Result<u64> {
    let invalid = |message| Err(url.error(io::ErrorKind::InvalidInput, message));
    let offset = options.offset;
    if !offset.is_multiple_of(SECTOR) {
        return invalid(format!("offset {offset} is not a multiple of {SECTOR}"));
    }
    let Some(rest) = image_size.checked_sub(offset) else {
        return invalid(format!(
            "offset {offset} is past the end of the image, which has {image_size} bytes"
        ));
    };
    let size = options.len.unwrap_or(rest);
    if size > rest {
        return invalid(format!(
            "{size} bytes at offset {offset} end past the image, which has {image_size} bytes"
        ));
    }
    Ok(size - size % SECTOR)
}
