//! Starts a cluster, prints the path of its configuration, and ends it when the input ends. With
//! `--stock`, the cluster keeps objects in a file, and acts as soon as Ceph's defaults say.

use std::io::Read;

use ceph_cluster::{Cluster, Options, Pace, Store};

fn main() -> anyhow::Result<()> {
    let options = match std::env::args().nth(1).as_deref() {
        None => Options::default(),
        Some("--stock") => Options { store: Store::File, pace: Pace::Stock, ..Options::default() },
        Some(other) => anyhow::bail!("unknown argument {other}"),
    };
    let cluster = Cluster::start(&options)?;
    println!("{}", cluster.conf().display());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
