//! `mount`: a volume on a directory, for every program.

mod daemon;
mod helper;
mod log;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, ensure};
use parext4::{FileOptions, Volume};
use parext4_mount::{MountOptions, Mounted, unmount};

use crate::image;
pub use helper::Helper;

/// Mount an image on a directory, for every program
///
/// Returns when the directory can be used; `parext4 umount` ends it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// An image file or block device
    image: PathBuf,
    /// An empty directory
    dir: PathBuf,
    /// As mount(8) has them, separated by commas: ro, norecovery (with ro: leave the journal alone), allow_other,
    /// noatime, offset=BYTES, commit=SECONDS, suid, dev, noexec, sync and others; errors=continue|remount-ro;
    /// uid=N, gid=N (whose all files are shown to be, and new ones are), resuid=N, resgid=N (who may use reserved
    /// blocks); cache=kernel|direct (who keeps files in memory), threads=N (that take requests),
    /// policy=range|shared-overwrite|exclusive, explain (waits, for parext4 stat), log=FILE (what goes wrong later; else
    /// the system's log)
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// As what the command starts to stay in the background
    #[arg(long, hide = true, conflicts_with = "foreground")]
    daemon: bool,
}

impl Args {
    fn mount_options(&self) -> Result<MountOptions> {
        let mut options = MountOptions::default();
        self.options.iter().try_for_each(|list| options.add(list))?;
        options.check()?;
        Ok(options)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let options = args.mount_options()?;
    let absolute = |path: &Path| path.canonicalize().with_context(|| path.display().to_string());
    let (image, dir) = (absolute(&args.image)?, absolute(&args.dir)?);
    check_dir(&dir)?;
    if !args.foreground && !args.daemon {
        return daemon::start(&image, &dir, &args.options);
    }
    if args.daemon {
        rustix::process::setsid().context("leaving the terminal")?;
    }
    log::start(options.log.as_deref().map(log::open).transpose()?);
    let mounted = mounted(&image, &dir, &options)?;
    if args.daemon {
        daemon::ready()?;
        log::leave_error_output();
        ::log::info!("{} is mounted on {}", image.display(), dir.display());
    }
    let served = mounted.serve();
    if args.daemon {
        match &served {
            Ok(()) => ::log::info!("{} is unmounted", image.display()),
            Err(error) => ::log::error!("{}: {error}", image.display()),
        }
    }
    Ok(served?)
}

/// Refuses what cannot be mounted on.
fn check_dir(dir: &Path) -> Result<()> {
    let metadata = dir.metadata().map_err(|error| {
        let dead = error.kind() == ErrorKind::NotConnected;
        let hint =
            if dead { ": the server of an earlier mount has ended; run \"parext4 umount\"" } else { "" };
        Error::new(error).context(format!("{}{hint}", dir.display()))
    })?;
    ensure!(metadata.is_dir(), "{}: not a directory", dir.display());
    Ok(())
}

/// Opens the volume and mounts it. A signal that asks the program to end unmounts it: at once if nobody uses it, else
/// when the last user goes.
fn mounted(image: &Path, dir: &Path, options: &MountOptions) -> Result<Mounted> {
    let file_options = FileOptions::new().read_only(options.read_only).offset(options.offset);
    let device = image::open_device(image, file_options)?;
    let volume =
        Volume::open(device, &options.open_options()).with_context(|| image.display().to_string())?;
    abort_on_panic();
    let mounted = Mounted::new(volume, image, dir, options)
        .with_context(|| format!("mounting {} on {}", image.display(), dir.display()))?;
    let dir = dir.to_owned();
    ctrlc::set_handler(move || {
        if let Err(error) = unmount(&dir, true) {
            ::log::error!("{error}");
        }
    })
    .context("catching signals")?;
    Ok(mounted)
}

/// A thread that panics may leave a change half made in memory. Better that the journal recovers the volume than that
/// this reaches it.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        ::log::error!("{panic}");
        std::process::abort();
    }));
}
