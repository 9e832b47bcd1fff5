//! Starts a cluster, prints the path of its configuration, and ends it when the input ends.

use std::io::Read;

fn main() -> anyhow::Result<()> {
    let cluster = ceph_cluster::Cluster::start(&ceph_cluster::Options::default())?;
    println!("{}", cluster.conf().display());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
