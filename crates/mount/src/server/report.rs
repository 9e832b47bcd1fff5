//! Answers requests for the server's counters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parext4::{MetadataCacheStats, Reason, Stats, Volume};

use super::Server;
use crate::protocol::{Failure, Outcome};
use crate::report::{
    AdmissionsFor, CacheFacts, MetadataFacts, MountFacts, Operations, Report, Requests, VolumeFacts,
};

/// Limit of explained waits, and of slow requests, so that the report fits an attribute.
const MAX_LINES: usize = 12;

impl Server {
    /// Returns the report as JSON.
    pub fn report(&self, requests: Requests) -> Outcome<Vec<u8>> {
        let volume = self.volume()?;
        let cache = volume.cache_stats();
        let report = Report {
            mount: self.mount_facts(&volume),
            volume: volume_facts(&volume),
            requests,
            operations: operations(&volume.stats()),
            cache: CacheFacts {
                budget: cache.budget,
                memory: cache.memory,
                bytes: cache.pages * cache.page_size,
                dirty_bytes: cache.dirty * cache.page_size,
                hits: cache.hits,
                misses: cache.misses,
                evicted: cache.evicted,
            },
            metadata: self.metadata_facts(&volume),
            device: device_counters(&volume),
            journal_commits: volume.commits(),
            slow_requests: self.in_flight.slow(Instant::now()).into_iter().take(MAX_LINES).collect(),
            waits: volume.explain().iter().take(MAX_LINES).map(ToString::to_string).collect(),
        };
        serde_json::to_vec(&report).map_err(|_| Failure::INVALID)
    }

    fn metadata_facts(&self, volume: &Volume) -> MetadataFacts {
        let MetadataCacheStats { budget, bytes, inodes, blocks, .. } = volume.metadata_cache_stats();
        MetadataFacts { budget, bytes, inodes, blocks, known_inodes: self.lookup_counts.len() as u64 }
    }

    fn mount_facts(&self, volume: &Volume) -> MountFacts {
        MountFacts {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            mounted_for_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            image: self.image.to_string_lossy().into_owned(),
            options: self.options.clone().read_only(volume.is_read_only()).to_string(),
            policy: self.options.policy.to_string(),
            locks_whole_file: self.options.policy.locks_whole_file(),
            stops_on_corruption: self.stops_on_corruption,
            stopped: volume.stopped(),
        }
    }
}

fn device_counters(volume: &Volume) -> BTreeMap<String, u64> {
    volume.device_counters().into_iter().map(|counter| (counter.name.to_owned(), counter.value)).collect()
}

fn volume_facts(volume: &Volume) -> VolumeFacts {
    let (label, space) = (volume.info().label, volume.space());
    VolumeFacts {
        label,
        block_size: space.block_size,
        blocks: space.blocks,
        free_blocks: space.free_blocks,
        available_blocks: space.available_blocks,
        inodes: space.inodes,
        free_inodes: space.free_inodes,
    }
}

fn operations(stats: &Stats) -> Operations {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let admissions = Reason::ALL.map(|reason| (reason, stats.admissions(reason)));
    let admissions = admissions.into_iter().filter(|(_, count)| count.total() > 0);
    Operations {
        admissions: admissions
            .map(|(reason, count)| AdmissionsFor {
                reason: reason.to_string(),
                shared: count.shared,
                exclusive: count.exclusive,
            })
            .collect(),
        drains: stats.drains,
        waits: stats.waits,
        waited_ns: nanoseconds(stats.waited),
        longest_wait_ns: nanoseconds(stats.longest_wait),
        bytes_zeroed: stats.bytes_zeroed,
        conversions: stats.conversions,
        conversions_merged: stats.conversions_merged,
        blocks_converted: stats.blocks_converted,
        zero_outs: stats.zero_outs,
    }
}
