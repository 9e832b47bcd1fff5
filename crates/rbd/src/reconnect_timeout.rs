//! [`ReconnectTimeout`]: the time after which requests to the cluster fail.
//!
//! librados waits for ever by default. This module makes it fail requests with `ETIMEDOUT` after a
//! time. The [fence](crate::fence) then refuses all later requests, because the cluster may still
//! perform the one that has timed out.

use std::ffi::CStr;
use std::io;

use crate::ffi::Cluster;
use crate::image_url::ImageUrl;

/// Default time in seconds until a request without an answer fails. Clusters need less time to
/// restart their servers.
pub(crate) const RECONNECT: u64 = 300;
/// Longest time in seconds that a request of an open waits.
const OPEN: u64 = 30;
/// Time in seconds that each request of a close waits after the cluster did not answer an earlier
/// one.
const CLOSE: u64 = 1;
/// Options: seconds to wait for OSDs and for monitors, as decimal numbers. Zero means no limit.
const TIMEOUTS: [&CStr; 2] = [c"rados_osd_op_timeout", c"rados_mon_op_timeout"];

/// The time in seconds until a request without an answer fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReconnectTimeout(u64);

impl ReconnectTimeout {
    /// Returns the time for a client of `url`, from its configuration, and sets a shorter one for
    /// the requests of the open.
    pub(crate) fn of(cluster: &Cluster, url: &ImageUrl) -> io::Result<Self> {
        let configured = cluster.get(TIMEOUTS[0])?.parse::<f64>().unwrap_or(0.0).ceil();
        // A number that does not fit becomes the largest one.
        let configured = Some(configured as u64).filter(|&seconds| seconds > 0);
        let this = Self(url.reconnect.or(configured).unwrap_or(RECONNECT));
        set(cluster, this.0.min(OPEN))?;
        Ok(this)
    }

    /// Sets the whole time for requests. The caller has opened the image.
    pub(crate) fn apply(self, cluster: &Cluster) -> io::Result<()> {
        set(cluster, self.0)
    }

    /// Returns the time in seconds.
    pub(crate) fn seconds(self) -> u64 {
        self.0
    }
}

/// Makes the requests of a close fail after a second.
pub(crate) fn hurry(cluster: &Cluster) {
    // If this fails, the close takes longer.
    let _ = set(cluster, CLOSE);
}

fn set(cluster: &Cluster, seconds: u64) -> io::Result<()> {
    TIMEOUTS.iter().try_for_each(|name| cluster.set(name, &seconds.to_string()))
}
