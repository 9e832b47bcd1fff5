//! A mount from beginning to end.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use fuser::{Config, MountOption, Session, SessionACL};
use parext4::Volume;

use crate::front::Front;
use crate::options::{Atime, MountOptions};
use crate::server::Server;
use crate::{mounts, readahead};

/// Where FUSE is found.
const DEVICE: &str = "/dev/fuse";

/// Why a volume could not be mounted, or was not left clean.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// FUSE failed.
    #[error(transparent)]
    Fuse(#[from] io::Error),
    /// The volume failed.
    #[error(transparent)]
    Volume(#[from] parext4::Error),
}

/// A volume that is mounted on a directory. Unmounted when it is dropped.
#[derive(Debug)]
pub struct Mounted {
    session: Session<Front>,
    connection: Option<String>,
    volume: Volume,
}

impl Mounted {
    /// Mounts a volume, which lies in `image`, on the directory `dir`. It can be used at once; requests wait until
    /// [`serve`](Self::serve) is called.
    ///
    /// # Errors
    /// If the root directory cannot be read, or `dir` cannot be mounted on.
    pub fn new(volume: Volume, image: &Path, dir: &Path, options: &MountOptions) -> Result<Self, MountError> {
        let server = Arc::new(Server::new(volume.clone(), image, options.clone())?);
        // Once it is mounted, looking at it waits for `serve`.
        let dir = dir.canonicalize()?;
        let front = Front::new(Arc::clone(&server))?;
        let crew = Arc::clone(&front.crew);
        let session = Session::new(front, &dir, &config(image, options)).map_err(explained)?;
        crew.set_device(session.as_fd().try_clone_to_owned()?);
        readahead::extend(&dir);
        // Nobody else sets it.
        let _ = server.notifier.set(session.notifier());
        let connection = mounts::connection_of(&dir);
        Ok(Self { session, connection, volume })
    }

    /// The kernel's number of the connection, by which `/sys/fs/fuse/connections` names it.
    #[must_use]
    pub fn connection(&self) -> Option<&str> {
        self.connection.as_deref()
    }

    /// Answers the kernel until the directory is unmounted, by whomever. Then closes the volume, so that the image
    /// is clean.
    ///
    /// # Errors
    /// The first of: FUSE fails, the volume cannot be closed in good order; its journal then recovers it.
    pub fn serve(self) -> Result<(), MountError> {
        let served = self.session.run();
        let closed = self.volume.close();
        served?;
        Ok(closed?)
    }
}

/// Names the device if it cannot be opened, which the library does not.
fn explained(error: io::Error) -> io::Error {
    match File::options().read(true).write(true).open(DEVICE) {
        Err(cause) => io::Error::new(cause.kind(), format!("{DEVICE}: {cause}")),
        Ok(_) => error,
    }
}

fn config(image: &Path, options: &MountOptions) -> Config {
    let yes_or_no = |wanted: bool, yes: MountOption, no: MountOption| if wanted { yes } else { no };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.fsname.clone().unwrap_or_else(|| image.display().to_string())),
        // The kernel knows it as an option of its own.
        MountOption::CUSTOM("subtype=parext4".to_owned()),
        MountOption::DefaultPermissions,
        yes_or_no(options.atime == Atime::Never, MountOption::NoAtime, MountOption::Atime),
        yes_or_no(options.read_only, MountOption::RO, MountOption::RW),
        yes_or_no(options.suid, MountOption::Suid, MountOption::NoSuid),
        yes_or_no(options.dev, MountOption::Dev, MountOption::NoDev),
        yes_or_no(options.exec, MountOption::Exec, MountOption::NoExec),
        yes_or_no(options.sync, MountOption::Sync, MountOption::Async),
    ];
    config.mount_options.extend(options.dirsync.then_some(MountOption::DirSync));
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads);
    config.clone_fd = true;
    config
}
