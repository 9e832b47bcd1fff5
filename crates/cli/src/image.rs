//! Opens and closes images.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow};
use parext4::device::signature::{self, Contents};
use parext4::mmp::MmpOptions;
use parext4::{Device, DeviceOptions, Replayed, Volume, VolumeOptions, find_backups, is_journal_device};
use parext4_copy::{CopyOptions, Observer, VolumeFiles};
use parext4_mount::is_being_closed;
use parext4_storage::{Location, open_volume_device, split_partition};

use crate::image_path::{ImagePath, is_url};
use crate::{hints, in_use, mmp};

/// Longest wait for a server to close an image after its mount has ended.
const SERVER_CLOSES_WITHIN: Duration = Duration::from_secs(30);
/// Time after which such a wait is announced.
const ANNOUNCED_AFTER: Duration = Duration::from_secs(3);
/// Time between two attempts to open such an image.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// The journal device that the command line names.
static JOURNAL: OnceLock<PathBuf> = OnceLock::new();

/// Sets the journal device of all volumes that the command opens.
pub fn set_journal(device: Option<PathBuf>) {
    if let Some(device) = device {
        let _ = JOURNAL.set(device);
    }
}

/// Returns the journal device that the command line names.
pub fn journal() -> Option<&'static Path> {
    JOURNAL.get().map(PathBuf::as_path)
}

/// Opens the journal device that the command line names, if it does.
pub fn open_journal(options: &DeviceOptions) -> Result<Option<Arc<dyn Device>>> {
    journal().map(|device| open_device(device, options)).transpose()
}

/// Opens the device of a volume that a user named.
pub fn open_device(image: &Path, options: &DeviceOptions) -> Result<Arc<dyn Device>> {
    when_closed(image, || open_volume_device(image, options))
}

/// Opens `image` by `open`. If a server still has the image after its mount has ended, waits until
/// the server has closed it: umount(2) does not wait for the server.
pub fn when_closed<T>(image: &Path, open: impl Fn() -> io::Result<T>) -> Result<T> {
    let disk = disk(image);
    let is_busy =
        |opened: &io::Result<T>| opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::ResourceBusy);
    let started = Instant::now();
    let mut is_announced = false;
    let mut opened = open();
    while is_busy(&opened) {
        // Asked before the attempt: a server that had closed the image by then does not make the
        // attempt fail.
        let is_closing = is_being_closed(disk) && started.elapsed() < SERVER_CLOSES_WITHIN;
        if is_closing {
            if started.elapsed() > ANNOUNCED_AFTER && !std::mem::replace(&mut is_announced, true) {
                crate::error::say(&format!("{}: waiting for another process to close it", image.display()));
            }
            sleep(RETRY_AFTER);
        }
        opened = open();
        if !is_closing {
            break;
        }
    }
    opened.map_err(|error| not_opened(image, error))
}

/// Returns the image that holds a partition, `disk.img` of `disk.img?partition=2`; any other image
/// itself.
pub fn disk(image: &Path) -> &Path {
    Path::new(split_partition(image.as_os_str()).0)
}

/// Adds to the error of opening a device what the user can do about it.
fn not_opened(image: &Path, error: io::Error) -> Error {
    if error.kind() == ErrorKind::ResourceBusy
        && let Some(user) = in_use::describe(disk(image))
    {
        return anyhow!("{}: in use: {user}", image.display());
    }
    let exists = |image: &Path| is_url(image.as_os_str()) || image.exists();
    match ImagePath::split(image.as_os_str()).filter(|inside| exists(&inside.image)) {
        Some(inside) if error.kind() == ErrorKind::NotFound => {
            anyhow!("{}: a path inside an image; give only {}", image.display(), inside.image.display())
        }
        _ => error.into(),
    }
}

/// Opens the volume in `image`.
pub fn open_volume(image: &Path, device: &DeviceOptions, options: &VolumeOptions) -> Result<Volume> {
    let device = open_device(image, device)?;
    let journal = open_journal(&DeviceOptions::new().read_only(options.read_only))?;
    open_volume_on(image, &device, journal, options)
}

/// Opens the volume on the device of `image`, with its journal on `journal` if that is a device of
/// its own.
pub fn open_volume_on(
    image: &Path,
    device: &Arc<dyn Device>,
    journal: Option<Arc<dyn Device>>,
    options: &VolumeOptions,
) -> Result<Volume> {
    let judge_by_time = options.mmp.judge_by_time;
    if !judge_by_time {
        mmp::announce_wait(image, &**device, options.read_only);
    }
    let mmp_options = mmp::options(image).judge_by_time(judge_by_time);
    let options = options.clone().mmp(mmp_options).journal_device(journal);
    let opened = Volume::open_device(Arc::clone(device), &options);
    let volume = opened.map_err(|error| not_a_volume(image, &**device, error))?;
    mmp::warn_reader(image, &volume);
    Ok(volume)
}

/// Replays the journal of the volume in `image`.
pub fn replay_journal(image: &Path) -> Result<Replayed> {
    let device = open_device(image, &DeviceOptions::new())?;
    mmp::announce_wait(image, &*device, false);
    let options =
        VolumeOptions::new().mmp(mmp::options(image)).journal_device(open_journal(&DeviceOptions::new())?);
    options.replay_journal(Arc::clone(&device)).map_err(|error| not_a_volume(image, &*device, error))
}

/// Names the image in the error of opening a volume, and what the image holds if that is not ext4.
/// Adds the remedy if a part of the volume is missing, or the superblock is damaged.
fn not_a_volume(name: &Path, device: &dyn Device, error: parext4::Error) -> Error {
    let image = name.display();
    if is_journal_device(device) {
        return journal_alone(name);
    }
    if let parext4::Error::NoJournalDevice { .. } = &error {
        return anyhow!("{image}: {error}; name it with --journal or -o journal_path=");
    }
    let (parext4::Error::Truncated { .. } | parext4::Error::Corrupt(_)) = &error else {
        return Error::new(error).context(image.to_string());
    };
    if let Err(foreign) = refuse_foreign(name, device) {
        return foreign;
    }
    let hint = match &error {
        parext4::Error::Truncated { needed, .. } => Some(hints::truncated(name, *needed)),
        parext4::Error::Corrupt(corruption) if corruption.structure == Some("superblock") => {
            find_backups(device).map(|backups| hints::backups(name, &backups))
        }
        _ => None,
    };
    match hint {
        Some(hint) => anyhow!("{image}: {error}; {hint}"),
        None => Error::new(error).context(image.to_string()),
    }
}

/// Returns the error of an image that holds something else, with what the user can do.
fn foreign(image: &Path, contents: &Contents) -> Error {
    let hint = hints::find(image, contents).map_or(String::new(), |hint| format!("; {hint}"));
    anyhow!("{}: not an ext4 volume, but {contents}{hint}", image.display())
}

/// Returns the error of a journal device that was given as a volume.
fn journal_alone(image: &Path) -> Error {
    let image = image.display();
    anyhow!("{image}: the journal of a volume on another device; name the volume, with --journal {image}")
}

/// Fails if `device` holds no volume of this kind, but something else, or nothing that is
/// recognised.
pub fn refuse_foreign(image: &Path, device: &dyn Device) -> Result<()> {
    if is_journal_device(device) {
        return Err(journal_alone(image));
    }
    let scan = signature::scan(device, 0..device.size());
    match scan.contents {
        Some(contents) if contents.has_ext() => Ok(()),
        Some(contents) => Err(foreign(image, &contents)),
        // Reading the superblock reports it.
        None if !scan.unreadable.is_empty() => Ok(()),
        None => Err(unrecognised(image, device)),
    }
}

/// Returns the error of an image in which nothing is recognised.
fn unrecognised(name: &Path, device: &dyn Device) -> Error {
    let image = name.display();
    match find_backups(device) {
        Some(backups) => anyhow!("{image}: the superblock is missing; {}", hints::backups(name, &backups)),
        None => anyhow!("{image}: not an ext4 volume"),
    }
}

/// Returns the image as other processes find it: an absolute path, or else what the user typed.
pub fn absolute(image: &Path) -> Result<PathBuf> {
    let location = Location::parse(image)?;
    let Some(path) = location.path() else { return Ok(image.to_owned()) };
    let mut absolute = path.canonicalize().with_context(|| path.display().to_string())?.into_os_string();
    if let (_, Some(number)) = split_partition(image.as_os_str()) {
        absolute.push(format!("?partition={number}"));
    }
    Ok(absolute.into())
}

/// Returns the options of a copy into or out of the volume in `image`: it must neither replace nor
/// read the files that hold the volume.
pub fn copy_options<'a>(image: &Path, observer: &'a dyn Observer) -> CopyOptions<'a> {
    let devices = [Some(image), journal()].into_iter().flatten();
    let files = devices.filter_map(|device| Location::parse(disk(device)).ok()?.path().map(Path::to_owned));
    let name = image.display().to_string();
    CopyOptions::new().observer(observer).volume_name(name).volume_files(VolumeFiles::at(files))
}

/// Runs `work` on the volume in `image`, read-only and locked against writers.
pub fn read<R>(image: &Path, work: impl FnOnce(&Volume) -> Result<R>) -> Result<R> {
    with_volume(image, &VolumeOptions::new().read_only(true), work)
}

/// Like [`read`], but does not wait to find out whether another machine changes the volume.
pub fn look<R>(image: &Path, work: impl FnOnce(&Volume) -> Result<R>) -> Result<R> {
    let by_time = MmpOptions::new().judge_by_time(true);
    with_volume(image, &VolumeOptions::new().read_only(true).mmp(by_time), work)
}

/// Runs `work` on the volume in `image`, locked against all other users, and closes it.
pub fn write<R>(image: &Path, work: impl FnOnce(&Volume) -> Result<R>) -> Result<R> {
    with_volume(image, &VolumeOptions::new(), work)
}

/// Runs `work` on the volume in `image`, opened with `options`, and closes it.
pub fn with_volume<R>(
    image: &Path,
    options: &VolumeOptions,
    work: impl FnOnce(&Volume) -> Result<R>,
) -> Result<R> {
    let volume = open_volume(image, &DeviceOptions::new().read_only(options.read_only), options)?;
    let result = work(&volume);
    let closed = volume.close().with_context(|| format!("closing {}", image.display()));
    // The first error is the cause of the second.
    let value = result?;
    closed?;
    Ok(value)
}
