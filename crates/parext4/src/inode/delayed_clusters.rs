//! The clusters in which dirty pages of a file lack blocks, in a volume with `bigalloc`.
//!
//! Responsible for which clusters have a claim. Invariant (H29): a cluster in which a dirty page
//! lacks blocks has a claim here, or the file has the cluster, or a thread that allocates the
//! cluster has taken the claim.
//!
//! A file keeps a cluster while a dirty page in it lacks blocks, because an operation that unmaps
//! blocks writes the pages in its clusters back first, under a range of whole clusters. So a
//! cluster that the file has needs no claim.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::sync::{Mutex, Rank};

/// The clusters of one file, by number.
#[derive(Debug)]
pub(crate) struct DelayedClusters(Mutex<BTreeMap<u32, Delayed>>);

#[derive(Debug)]
struct Delayed {
    /// Number of blocks of dirty pages that are not allocated.
    blocks: u32,
    is_claimed: bool,
}

impl DelayedClusters {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Rank::DelayedClusters, BTreeMap::new()))
    }

    /// Adds blocks, each with its cluster in ascending order. Calls `claim` with the number of
    /// clusters that are neither listed nor satisfy `is_owned`, before it adds any.
    ///
    /// # Errors
    /// The error of `claim`, with nothing changed.
    pub(crate) fn add<B>(
        &self,
        blocks: impl Iterator<Item = (u32, B)> + Clone,
        is_owned: impl Fn(B) -> bool,
        claim: impl FnOnce(u32) -> Result<()>,
    ) -> Result<()> {
        let mut clusters = self.0.lock();
        let mut new: BTreeMap<u32, bool> = BTreeMap::new();
        for (cluster, block) in blocks.clone() {
            if !clusters.contains_key(&cluster) {
                new.entry(cluster).or_insert_with(|| !is_owned(block));
            }
        }
        let count = new.values().map(|&lacks| u32::from(lacks)).sum();
        if count > 0 {
            claim(count)?;
        }
        for (cluster, _) in blocks {
            let is_claimed = new.get(&cluster).copied().unwrap_or(false);
            clusters.entry(cluster).or_insert(Delayed { blocks: 0, is_claimed }).blocks += 1;
        }
        Ok(())
    }

    /// Removes blocks, given by their clusters, which are all listed. Returns the number of
    /// clusters that have no block left here, and still have their claim.
    pub(crate) fn remove(&self, blocks: impl Iterator<Item = u32>) -> u32 {
        let mut clusters = self.0.lock();
        let mut released = 0;
        for cluster in blocks {
            if let Some(delayed) = clusters.get_mut(&cluster) {
                delayed.blocks -= 1;
                if delayed.blocks == 0 {
                    released += u32::from(delayed.is_claimed);
                    clusters.remove(&cluster);
                }
            }
        }
        released
    }

    /// Takes the claims of `count` clusters from `first` on. Returns the clusters that had one.
    pub(crate) fn take(&self, first: u32, count: u32) -> Vec<u32> {
        let mut clusters = self.0.lock();
        let range = clusters.range_mut(first..first.saturating_add(count));
        let taken = range.map(|(&cluster, delayed)| (cluster, std::mem::take(&mut delayed.is_claimed)));
        taken.filter_map(|(cluster, was_claimed)| was_claimed.then_some(cluster)).collect()
    }

    /// Puts the claim of `cluster`, which was [taken](Self::take) and not used, into the list
    /// again. A block of the cluster is still listed.
    pub(crate) fn put_back(&self, cluster: u32) {
        if let Some(delayed) = self.0.lock().get_mut(&cluster) {
            delayed.is_claimed = true;
        }
    }
}
