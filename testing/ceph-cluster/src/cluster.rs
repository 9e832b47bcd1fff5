//! [`Cluster`]: starts and ends the daemons, and runs administrators' commands.

use std::ffi::OsStr;
use std::ops::DerefMut;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use tempfile::TempDir;
use uuid::Uuid;

use crate::PROGRAMS;
use crate::config::{self, Options, Ports};
use crate::guard::{Daemon, Guard};
use crate::run::run;

/// Pool of the images.
const POOL: &str = "rbd";
/// Number of attempts to start a cluster, in case another process takes its ports.
const ATTEMPTS: usize = 3;

/// A running cluster with an empty pool for images, `rbd`.
#[derive(Debug)]
pub struct Cluster {
    // Ends the daemons and removes the directory.
    daemons: Mutex<Daemons>,
    dir: PathBuf,
}

#[derive(Debug)]
struct Daemons {
    guard: Guard,
    osds: Vec<Daemon>,
}

impl Cluster {
    /// Returns the Debian packages of the programs that are not installed.
    pub fn missing() -> Vec<&'static str> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = |program| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
        PROGRAMS.iter().filter(|(program, _)| !found(program)).map(|&(_, package)| package).collect()
    }

    /// Starts a cluster. Returns when images can be made.
    ///
    /// # Errors
    /// A program is not installed or fails; the message says which.
    pub fn start(options: &Options) -> Result<Self> {
        let mut started = Self::attempt(options);
        for _ in 1..ATTEMPTS {
            if started.is_ok() {
                break;
            }
            started = Self::attempt(options);
        }
        started
    }

    fn attempt(options: &Options) -> Result<Self> {
        let dir = TempDir::with_prefix("ceph-cluster-")?;
        let guard = Guard::start(dir.path())?;
        // The guard removes the directory from here on.
        let daemons = Mutex::new(Daemons { guard, osds: Vec::new() });
        let cluster = Self { daemons, dir: dir.keep() };
        let (fsid, ports) = (Uuid::new_v4(), Ports::find()?);
        std::fs::write(cluster.conf(), config::text(&cluster.dir, fsid, &ports, options))?;
        cluster.make_keys(options.osds)?;
        cluster.start_monitor(fsid, &ports)?;
        cluster.start_osds(options.osds)?;
        Ok(cluster)
    }

    /// Returns the path of the configuration.
    pub fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    /// Returns the directory of the cluster, with the logs of the daemons.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the URL of an image, or of a snapshot as `IMAGE@SNAPSHOT`, for the administrator.
    pub fn url(&self, image: &str) -> String {
        format!("rbd:{POOL}/{image}?conf={}", self.conf().display())
    }

    /// Returns the URL of an image for another user.
    pub fn url_of_user(&self, image: &str, user: &str) -> String {
        format!("{}&id={user}", self.url(image))
    }

    /// Runs `rbd` with these arguments as the administrator, and returns what it printed.
    ///
    /// # Errors
    /// The command fails; the error has its messages.
    pub fn rbd(&self, arguments: &[impl AsRef<OsStr>]) -> Result<String> {
        run(self.program("rbd").args(arguments), "")
    }

    /// Runs `ceph` with these arguments as the administrator, and returns what it printed.
    ///
    /// # Errors
    /// The command fails; the error has its messages.
    pub fn ceph(&self, arguments: &[impl AsRef<OsStr>]) -> Result<String> {
        run(self.program("ceph").args(arguments), "")
    }

    /// Kills an OSD without notice.
    ///
    /// # Errors
    /// It is not running.
    pub fn kill_osd(&self, id: usize) -> Result<()> {
        self.daemons().osds.get(id).context("no such OSD")?.kill()
    }

    /// Starts an OSD that was killed.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn restart_osd(&self, id: usize) -> Result<()> {
        let daemon = self.spawn_osd(id)?;
        self.daemons().osds[id] = daemon;
        Ok(())
    }

    fn daemons(&self) -> impl DerefMut<Target = Daemons> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.arg("--conf").arg(self.conf()).env_remove("CEPH_ARGS");
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn make_keys(&self, osds: u32) -> Result<()> {
        let keyring = self.path("keyring");
        for (index, (name, caps)) in config::users(osds).into_iter().enumerate() {
            let mut command = Command::new("ceph-authtool");
            if index == 0 {
                command.arg("--create-keyring");
            }
            command.arg(&keyring).args(["--gen-key", "-n", &name]);
            for pair in caps.chunks(2) {
                command.arg("--cap").args(pair);
            }
            run(&mut command, "")?;
        }
        Ok(())
    }

    fn start_monitor(&self, fsid: Uuid, ports: &Ports) -> Result<()> {
        let map = self.path("monmap");
        let mut maker = Command::new("monmaptool");
        maker.args(["--create", "--fsid", &fsid.to_string(), "--addv", "a", &ports.addresses()]);
        run(maker.arg(&map), "")?;
        let mut mkfs = self.program("ceph-mon");
        mkfs.args(["--mkfs", "-i", "a", "--monmap"]).arg(&map).arg("--keyring").arg(self.path("keyring"));
        run(&mut mkfs, "")?;
        let command = format!("ceph-mon --conf {} -i a -f", self.conf().display());
        let monitor = self.daemons().guard.spawn("mon", &command)?;
        // The first command waits until the monitor answers.
        let made = run(self.program("ceph").args(["--connect-timeout", "30"]), &self.first_commands());
        monitor.check().with_context(|| self.log("mon.out"))?;
        made.map(drop)
    }

    /// Returns the lines for the first session of `ceph`, which make the pool and the ids of OSDs.
    fn first_commands(&self) -> String {
        let count = 8;
        format!(
            "osd new {}\nosd new {}\nosd pool create {POOL} {count} {count}\nosd pool application enable {POOL} rbd\nquit\n",
            osd_uuid(0),
            osd_uuid(1)
        )
    }

    fn start_osds(&self, count: u32) -> Result<()> {
        for id in 0..count as usize {
            std::fs::create_dir(self.path(&format!("osd.{id}")))?;
            let mut mkfs = self.program("ceph-osd");
            mkfs.args(["--mkfs", "--no-mon-config", "-i", &id.to_string(), "--osd-uuid"]);
            run(mkfs.arg(osd_uuid(id).to_string()), "")?;
            let daemon = self.spawn_osd(id)?;
            self.daemons().osds.push(daemon);
        }
        // This command waits until an OSD serves the pool.
        self.rbd(&["ls"])?;
        Ok(())
    }

    fn spawn_osd(&self, id: usize) -> Result<Daemon> {
        let command = format!("ceph-osd --conf {} -i {id} -f", self.conf().display());
        let daemon = self.daemons().guard.spawn(&format!("osd.{id}"), &command)?;
        daemon.check().with_context(|| self.log(&format!("osd.{id}.out")))?;
        Ok(daemon)
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

/// Returns the identity of an OSD.
fn osd_uuid(id: usize) -> Uuid {
    Uuid::from_u128(0x6f73_6400_0000_4000_8000_0000_0000_0000 + id as u128)
}
