//! `mount`: mounts an image on a directory, for every program.

mod daemon;
mod guard;
mod helper;
mod log;
mod signals;
mod source;
mod standby;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, ensure};
use parext4::DeviceOptions;
use parext4_mount::{MountOptions, Mounted, remount, remove_dead_mounts};
use parext4_storage::{partition_options, split_partition};

use crate::{error, image, recorded};
use daemon::Startup;
use guard::Guard;
pub use guard::run as guard;
pub use helper::{Helper, MOUNT_NAMES, UMOUNT_NAME, commands as helper_commands};
use signals::{Signals, Stage};
use source::Source;

/// Mount an image on a directory, for every program
///
/// Returns when the directory can be used, or with --standby when it waits; `parext4 umount` ends
/// it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// An image file, a block device or a URL, with ?partition=N at its end for a partition
    image: PathBuf,
    /// An empty directory; with -o nonempty, another one, whose files are hidden while it is
    /// mounted on
    dir: PathBuf,
    /// Options of mount(8), ext4(5) and fuse2fs(1), separated by commas; mount.fuse.parext4(8)
    /// explains all of them. Among them: ro, remount, nonempty (mount over a directory that holds
    /// files), norecovery (do not replay the journal), allow_other (for users other than the one
    /// that mounts), noatime, offset=BYTES, partition=N, commit=SECONDS, suid, dev, noexec, sync,
    /// errors=continue|remount-ro, uid=N and gid=N (owner and group that all files show), usrquota,
    /// grpquota, prjquota, idmap, cache=kernel|writeback|direct, metadata_cache=SIZE,
    /// page_cache=SIZE, threads=N, log=FILE
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Wait until the volume's owner on another machine is gone, then fence it, take the volume
    /// over and mount it. The command returns once it waits; parext4 umount ends the wait. The same
    /// as -o standby; parext4-network(7) explains it
    #[arg(long)]
    standby: bool,
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// Serve as the background process of the command
    #[arg(long, hide = true, conflicts_with = "foreground")]
    daemon: bool,
    /// The directory may hold files
    #[arg(skip)]
    covers: bool,
}

impl Args {
    /// Returns the lists of options, with the journal device that the command line names.
    fn lists(&self) -> Vec<String> {
        let journal = image::journal().map(|device| format!("journal_path={}", device.display()));
        self.options.iter().cloned().chain(journal).collect()
    }

    pub fn mount_options(&self) -> Result<MountOptions> {
        let mut options = MountOptions::new();
        self.lists().iter().try_for_each(|list| options.add(list))?;
        options.standby |= self.standby;
        Ok(options)
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let options = args.mount_options()?;
    if options.remount {
        return Ok(remount(&args.dir, &args.options)?);
    }
    let image = image::absolute(&args.image)?;
    let dir = args.dir.canonicalize().with_context(|| args.dir.display().to_string())?;
    if !args.daemon {
        prepare_dir(&dir, args.covers || options.nonempty)?;
    }
    if !args.foreground && !args.daemon {
        return daemon::start(&image, &dir, &args.lists(), args.standby);
    }
    if args.daemon {
        rustix::process::setsid().context("leaving the terminal")?;
    }
    image::set_journal(options.journal.clone());
    log::start(options.log.as_deref().map(log::open).transpose()?, &dir);
    let mut startup = Startup::new(args.daemon);
    let served = serve(&image, &dir, options, &args.options, &mut startup);
    if startup.has_returned() {
        match &served {
            Ok(()) => {
                ::log::info!("{} is unmounted", image.display());
                log::end();
            }
            Err(error) => ::log::error!("{}", error::describe(error)),
        }
    }
    served
}

/// Opens the volume, or first waits for its owner to be gone, mounts it, and serves it until it is
/// unmounted.
fn serve(
    image: &Path,
    dir: &Path,
    mut options: MountOptions,
    lists: &[String],
    startup: &mut Startup,
) -> Result<()> {
    let device = device_options(image, &options)?;
    // The mount knows the disk and the offset, and programs find it by its disk.
    (options.offset, options.partition) = (device.offset, None);
    let image = image::disk(image);
    let mut signals = None;
    let mut source = Source::new(image, device.clone(), options);
    let (volume, protected) = if source.options().standby {
        let signals = signals.insert(Signals::catch(dir, Stage::StandsBy)?);
        (standby::take_over(image, device, source.options(), dir, signals, || startup.finish())?, None)
    } else {
        source.open_first()?
    };
    let options = &source.options().clone();
    let errors = volume.info().errors;
    let errors = errors.map(|errors| format!("{}: {}", image.display(), recorded::describe(&errors)));
    let warnings: Vec<String> = protected.into_iter().chain(errors).collect();
    let mut guard = Guard::start()?;
    abort_on_panic();
    let mounted = Mounted::new(volume, image, dir, options)
        .with_context(|| format!("mounting {} on {}", image.display(), dir.display()))?
        .reopen_with(source);
    mounted.show_log(log::recent);
    let stage = match mounted.connection() {
        Some(connection) => Stage::ServesOver(connection.to_owned(), mounted.state()),
        None => Stage::Serves,
    };
    match signals {
        Some(signals) => signals.enter(stage),
        None => drop(Signals::catch(dir, stage)?),
    }
    if let Some(connection) = mounted.connection() {
        guard.watch(connection)?;
    }
    warnings.iter().for_each(|warning| crate::error::say(&format!("warning: {warning}")));
    startup.finish()?;
    if startup.has_returned() || options.log.is_some() {
        warnings.iter().for_each(|warning| ::log::warn!("{warning}"));
    }
    if startup.has_returned() || options.standby {
        ::log::info!("{} is mounted on {}", image.display(), dir.display());
        for (option, why) in lists.iter().flat_map(|list| MountOptions::without_effect(list)) {
            ::log::info!("mount option {option:?} has no effect: {why}");
        }
    }
    mounted.serve().with_context(|| image.display().to_string())
}

/// Removes mounts of the caller whose servers have ended. Fails if `dir` cannot be mounted on, or
/// holds files and `covers` is false.
fn prepare_dir(dir: &Path, covers: bool) -> Result<()> {
    let removed = remove_dead_mounts(dir)?;
    if removed > 0 {
        crate::error::say(&format!("{}: removed an earlier mount, whose server had ended", dir.display()));
    }
    let metadata = dir.metadata().map_err(|error| {
        let dead = error.kind() == ErrorKind::NotConnected;
        let hint =
            if dead { ": the server of an earlier mount has ended; run \"parext4 umount\"" } else { "" };
        Error::new(error).context(format!("{}{hint}", dir.display()))
    })?;
    ensure!(metadata.is_dir(), "{}: not a directory", dir.display());
    let is_empty = || Ok::<_, io::Error>(dir.read_dir()?.next().transpose()?.is_none());
    ensure!(
        covers || is_empty().with_context(|| dir.display().to_string())?,
        "{}: the directory is not empty; \"-o nonempty\" mounts over it, and covers what it holds",
        dir.display()
    );
    Ok(())
}

/// Returns how the device is opened: at the offset, in the partition.
fn device_options(image: &Path, options: &MountOptions) -> Result<DeviceOptions> {
    let device = DeviceOptions::new().offset(options.offset);
    let (disk, number) = split_partition(image.as_os_str());
    match number.or(options.partition) {
        Some(number) => Ok(partition_options(disk, number, &device)?),
        None => Ok(device),
    }
}

/// Makes a panic of any thread abort the process. A thread that panics may leave a change half made
/// in memory; the process must not write it. The journal recovers the volume instead.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        ::log::error!("{panic}");
        std::process::abort();
    }));
}
