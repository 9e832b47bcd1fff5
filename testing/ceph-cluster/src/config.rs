//! The configuration and the keys of a cluster.

use std::net::TcpListener;
use std::path::Path;

use anyhow::Result;
use uuid::Uuid;

/// User with only the capabilities that images need.
pub const TENANT: &str = "tenant";

/// Where OSDs keep objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// In memory, 8 GiB at most. A killed OSD loses them.
    #[default]
    Memory,
    /// In a file, 4 GiB at most. A killed OSD finds them again.
    File,
}

/// How soon daemons and clients act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Sooner than by default, for short tests: the monitor decides 20 times a second, and one
    /// report of a neighbour is enough to take an OSD for dead.
    #[default]
    Quick,
    /// By the defaults of Ceph: the monitor decides once a second.
    Stock,
}

impl Pace {
    /// Returns the lines of the configuration of all programs, and of the monitor. `watch` is the
    /// time of a watch, in seconds.
    fn text(self, watch: u32) -> (String, &'static str) {
        if self == Self::Stock {
            return (String::new(), "");
        }
        // Clients ask the OSDs for signs of life at every tick, which must be shorter than the time
        // of a watch. A client that meets an OSD while it restarts asks for the map of OSDs only
        // after the time of `objecter timeout`.
        let (tick, laggy) = if watch < 15 { (1, 2) } else { (5, 10) };
        let clients = format!("objecter tick interval = {tick}\nobjecter timeout = {laggy}\n");
        let monitor =
            "paxos propose interval = 0.05\npaxos min wait = 0.02\nmon osd min down reporters = 1\n";
        (clients, monitor)
    }
}

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where OSDs keep objects.
    pub store: Store,
    /// Number of OSDs, each of which keeps a copy of every object.
    pub osds: u32,
    /// Time in seconds after which a client that is not heard from no longer counts as alive.
    /// Ceph's default is 30.
    pub watch_seconds: u32,
    /// How soon daemons and clients act.
    pub pace: Pace,
}

impl Default for Options {
    fn default() -> Self {
        Self { store: Store::Memory, osds: 1, watch_seconds: 30, pace: Pace::Quick }
    }
}

/// Addresses of the monitor.
pub(crate) struct Ports {
    pub(crate) v2: u16,
    pub(crate) v1: u16,
}

impl Ports {
    /// Finds two free ports. Another process may take them before the monitor does; the caller then
    /// tries again.
    pub(crate) fn find() -> Result<Self> {
        let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
        let [v2, v1] =
            listeners.each_ref().map(|listener| listener.local_addr().map(|address| address.port()));
        Ok(Self { v2: v2?, v1: v1? })
    }

    pub(crate) fn addresses(&self) -> String {
        format!("[v2:127.0.0.1:{}/0,v1:127.0.0.1:{}/0]", self.v2, self.v1)
    }
}

/// Returns the text of `ceph.conf` for a cluster in `dir`.
pub(crate) fn text(dir: &Path, fsid: Uuid, ports: &Ports, options: &Options) -> String {
    let dir = dir.display();
    let (addresses, osds, watch) = (ports.addresses(), options.osds, options.watch_seconds);
    let store = match options.store {
        Store::Memory => "osd objectstore = memstore\nmemstore device bytes = 8G",
        Store::File => {
            "osd objectstore = bluestore\nbluestore block size = 4G\nbluestore block create = true\n\
             osd memory target = 900M\nosd op num shards = 2"
        }
    };
    let (clients, monitor) = options.pace.text(watch);
    format!(
        "[global]\n\
         fsid = {fsid}\n\
         mon host = {addresses}\n\
         run dir = {dir}\n\
         crash dir = {dir}\n\
         log file = {dir}/$name.log\n\
         admin socket = {dir}/$name.$pid.asok\n\
         keyring = {dir}/keyring\n\
         auth cluster required = cephx\n\
         auth service required = cephx\n\
         auth client required = cephx\n\
         public addr = 127.0.0.1\n\
         ms bind ipv6 = false\n\
         mon allow pool size one = true\n\
         osd pool default size = {osds}\n\
         osd pool default min size = 1\n\
         osd pool default pg autoscale mode = off\n\
         osd crush chooseleaf type = 0\n\
         osd client watch timeout = {watch}\n\
         {clients}\
         [client]\n\
         admin socket =\n\
         log file =\n\
         [mon]\n\
         mon data = {dir}/mon\n\
         mon initial members = a\n\
         {monitor}\
         [osd]\n\
         osd data = {dir}/osd.$id\n\
         osd class update on start = false\n\
         {store}\n"
    )
}

/// Returns the arguments by which `ceph-authtool` makes the key of each user, with its
/// capabilities.
pub(crate) fn users(osds: u32) -> Vec<(String, Vec<&'static str>)> {
    let all = "allow *";
    let mut users = vec![
        ("mon.".to_owned(), vec!["mon", all]),
        ("client.admin".to_owned(), vec!["mon", all, "osd", all, "mgr", all]),
        (format!("client.{TENANT}"), vec!["mon", "profile rbd", "osd", "profile rbd"]),
    ];
    users.extend((0..osds).map(|id| (format!("osd.{id}"), vec!["mon", "allow profile osd", "osd", all])));
    users
}
