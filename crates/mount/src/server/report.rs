//! Answers requests for the server's counters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fuser::INodeNo;
use parext4::{MetadataCacheStats, Reason, Stats, Volume};
use parext4_sync::atomic::Ordering;

use super::Server;
use crate::protocol::{Caller, Failure, Outcome};
use crate::report::{
    AdmissionsFor, CacheFacts, MetadataFacts, MountFacts, Operations, Report, Requests, VolumeFacts,
};

/// Limit of explained waits, and of slow requests, so that the report fits an attribute.
const MAX_LINES: usize = 12;

impl Server {
    /// Makes all changes durable, and returns the report as JSON.
    pub fn sync_and_report(&self, requests: Requests, caller: Caller) -> Outcome<Vec<u8>> {
        self.sync_dir(INodeNo::ROOT)?;
        self.log_refused();
        self.report(requests, caller)
    }

    /// Logs the files whose write-back was refused, each once. Blocks on the device.
    pub fn log_refused(&self) {
        if let Ok(volume) = self.volume() {
            self.refused.log(&volume);
        }
    }

    /// Returns the report as JSON. Names of files, and the log, which contains such names, are only
    /// for callers that administer the mount.
    pub fn report(&self, requests: Requests, caller: Caller) -> Outcome<Vec<u8>> {
        let volume = self.volume()?;
        let cache = volume.cache_stats();
        let shows_names = caller.administers();
        let (log_place, log) = self.log.get().map(|log| log()).filter(|_| shows_names).unwrap_or_default();
        let report = Report {
            mount: MountFacts { log: log_place, ..self.mount_facts(&volume) },
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
            refused: self.refused.report(&volume, shows_names),
            slow_requests: self.in_flight.slow(Instant::now()).into_iter().take(MAX_LINES).collect(),
            waits: volume.explain().iter().take(MAX_LINES).map(ToString::to_string).collect(),
            log,
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
            shut_down: self.shut_down.load(Ordering::Relaxed),
            log: String::new(),
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
