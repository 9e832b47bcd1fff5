//! Mounts a volume and serves it until it is unmounted.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Weak};

use fuser::{Config, MountOption, Session, SessionACL};
use parext4::Volume;
use parext4::server::ServerVolume as _;
use rustix::mount::{FsOpenFlags, fsopen};

use crate::connection::{connection_of, extend_read_ahead};
use crate::dispatch::Dispatcher;
use crate::options::{Atime, MountOptions};
use crate::report::RecentLog;
use crate::server::{Reopen, Server};

/// The device file of FUSE.
const DEVICE: &str = "/dev/fuse";

/// Why a volume could not be mounted, or was not left clean.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// FUSE failed.
    #[error(transparent)]
    Fuse(#[from] io::Error),
    /// The volume failed.
    #[error(transparent)]
    Volume(#[from] parext4::Error),
}

/// A volume that is mounted on a directory. Dropping it unmounts the directory.
#[derive(Debug)]
pub struct Mounted {
    session: Session<Dispatcher>,
    connection: Option<String>,
    server: Arc<Server>,
}

impl Mounted {
    /// Mounts a volume from the file `image` on the directory `dir`. Programs can use the directory
    /// at once; their calls block until [`serve`](Self::serve) runs.
    ///
    /// # Errors
    /// If the root directory cannot be read, `dir` cannot be mounted on, or two options contradict
    /// each other.
    pub fn new(volume: Volume, image: &Path, dir: &Path, options: &MountOptions) -> Result<Self, MountError> {
        options.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let server = Arc::new(Server::new(volume.clone(), image, options.clone())?);
        // This comes before the mount, because afterwards a look-up of `dir` blocks until `serve`
        // runs.
        let dir = dir.canonicalize()?;
        let dispatcher = Dispatcher::new(Arc::clone(&server))?;
        let request_threads = dispatcher.request_threads();
        let session = Session::new(dispatcher, &dir, &config(image, options)).map_err(explain)?;
        request_threads.set_device(session.as_fd().try_clone_to_owned()?);
        extend_read_ahead(&dir);
        // This fails only if the notifier is set already, and only this line sets it.
        let _ = server.notifier.set(session.notifier());
        let connection = connection_of(&dir);
        if !volume.is_read_only()
            && let Err(error) = volume.set_last_mounted(&dir)
        {
            log::warn!("the superblock does not name the directory of the mount: {error}");
        }
        Ok(Self { session, connection, server })
    }

    /// Permits [`remount`](crate::remount) to make a volume writable that is mounted read-only.
    #[must_use]
    pub fn reopen_with(self, source: impl Reopen + 'static) -> Self {
        // Only a second call finds it set, and then the first call counts.
        let _ = self.server.reopen.set(Box::new(source));
        self
    }

    /// Returns the kernel's number of the connection, which names its folder in
    /// `/sys/fs/fuse/connections`.
    #[must_use]
    pub fn connection(&self) -> Option<&str> {
        self.connection.as_deref()
    }

    /// Returns a view of the mount for the thread that handles signals.
    #[must_use]
    pub fn state(&self) -> MountState {
        MountState(Arc::downgrade(&self.server))
    }

    /// Makes the report of the mount contain the last lines of the program's log.
    pub fn show_log(&self, log: RecentLog) {
        // This fails only if the log is set already.
        let _ = self.server.log.set(log);
    }

    /// Answers the kernel's requests until the directory is unmounted, by any process. Then closes
    /// the volume, which leaves the image clean.
    ///
    /// # Errors
    /// The first of: FUSE fails; the volume cannot be closed cleanly, so the next open replays its
    /// journal.
    pub fn serve(self) -> Result<(), MountError> {
        let served = self.session.run();
        let closed = self.server.close();
        served?;
        Ok(closed?)
    }
}

/// The present state of a mount, which `remount,rw` can make writable.
#[derive(Clone, Debug)]
pub struct MountState(Weak<Server>);

impl MountState {
    /// Returns true if the volume is open, and only for reading.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        let volume = self.0.upgrade().and_then(|server| server.volume().ok());
        volume.is_some_and(|volume| volume.is_read_only())
    }
}

/// Adds the name of the device file to an error of a mount that failed because the file cannot be
/// opened.
fn explain(error: io::Error) -> io::Error {
    match File::options().read(true).write(true).open(DEVICE) {
        Err(cause) => io::Error::new(cause.kind(), format!("{DEVICE}: {cause}")),
        Ok(_) => error,
    }
}

/// Returns true if the calling process may call mount(2). Otherwise fuser calls fusermount3.
fn may_mount() -> bool {
    fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).is_ok()
}

/// Returns a value in the form in which fusermount3 reads it from a list of options: a backslash
/// escapes the next character.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

fn config(image: &Path, options: &MountOptions) -> Config {
    let choose = |wanted: bool, yes: MountOption, no: MountOption| if wanted { yes } else { no };
    let mut config = Config::default();
    let name = options.fsname.clone().unwrap_or_else(|| image.display().to_string());
    config.mount_options = vec![
        MountOption::FSName(if may_mount() { name } else { escape(&name) }),
        // This is a custom option, because fuser passes `MountOption::Subtype` to fusermount but
        // not to the kernel.
        MountOption::CUSTOM("subtype=parext4".to_owned()),
        MountOption::DefaultPermissions,
        choose(options.atime == Atime::Never, MountOption::NoAtime, MountOption::Atime),
        choose(options.read_only, MountOption::RO, MountOption::RW),
        choose(options.suid, MountOption::Suid, MountOption::NoSuid),
        choose(options.dev, MountOption::Dev, MountOption::NoDev),
        choose(options.exec, MountOption::Exec, MountOption::NoExec),
        choose(options.sync, MountOption::Sync, MountOption::Async),
    ];
    config.mount_options.extend(options.dirsync.then_some(MountOption::DirSync));
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads);
    config.clone_fd = true;
    config
}
