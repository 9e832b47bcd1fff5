//! Clusters of a volume with bigalloc, which blocks of one file share.

use std::sync::Arc;

use parext4::fault::Fault;
use parext4::models::leave_blocks;
use parext4::{DirectFile, MemDevice, SplitAt, Volume};

use super::support::*;
use testkit::volume::DirectFiles as _;

/// Blocks of a cluster: two pages.
const CLUSTER: u32 = 8;

/// Returns a volume, with a file that is a hole of two clusters.
fn with_hole(image: &MemDevice) -> (Volume, DirectFile) {
    let volume = open_quiet(Arc::new(image.fork()), SplitAt::Completion);
    let file = volume.create_direct("/f").unwrap();
    file.set_len(u64::from(2 * CLUSTER) * BLOCK as u64).unwrap();
    (volume, file)
}

fn at(block: u64) -> u64 {
    block * BLOCK as u64
}

/// Checks that blocks of one cluster of the file lie in one cluster of the volume, and that no more
/// than `clusters` are in use.
fn check_clusters(volume: &Volume, file: &DirectFile, free: u64, clusters: u64) {
    let size = at(CLUSTER.into());
    let mut of_volume: Vec<(u64, u64)> = file
        .fiemap(0..u64::MAX)
        .unwrap()
        .iter()
        .flat_map(|run| {
            let blocks = 0..run.len / BLOCK as u64;
            blocks.map(|nth| ((run.offset + at(nth)) / size, (run.device_offset + at(nth)) / size))
        })
        .collect();
    of_volume.dedup();
    assert!(of_volume.windows(2).all(|pair| pair[0].0 < pair[1].0), "{of_volume:?}");
    assert!(of_volume.len() as u64 <= clusters, "{of_volume:?}");
    assert_eq!(volume.space().free_blocks, free - of_volume.len() as u64 * u64::from(CLUSTER));
}

#[test]
fn holes_of_one_cluster_are_filled_in_parallel() {
    check_with_clusters(CLUSTER, 200, &[Fault::ClusterUnlocked], |image| {
        let (volume, file) = with_hole(image);
        let free = volume.space().free_blocks;
        let third = spawn(&file, |f| write(f, 3, 4 * BLOCK / SECTOR, at(6)));
        race(&file, |f| write_block(f, 1, 1), |f| write_block(f, 2, 4));
        third.join().unwrap();
        assert_eq!(blocks_of(&file, 12), [0, 1, 0, 0, 2, 0, 3, 3, 3, 3, 0, 0]);
        check_clusters(&volume, &file, free, 2);
        file.set_len(0).unwrap();
        volume.sync().unwrap();
        assert_eq!(volume.space().free_blocks, free);
    });
}

#[test]
fn a_dirty_page_keeps_its_space_if_its_cluster_is_freed() {
    check_with_clusters(CLUSTER, 200, &[Fault::UnmapBlocksOnly], |image| {
        let (volume, file) = with_hole(image);
        let of_both = |first: u64| [first, first + u64::from(CLUSTER)];
        of_both(1).into_iter().for_each(|block| write_block(&file, 1, block));
        let buffered = file.buffered().unwrap();
        // The pages have no blocks, but their clusters have. One cluster could use the space that
        // is reserved for the tree.
        race(
            &file,
            move |f| {
                let buffered = f.buffered().unwrap();
                for block in of_both(5) {
                    buffered.write_all_at(&[2; BLOCK], at(block)).unwrap();
                }
            },
            move |f| of_both(1).into_iter().for_each(|block| f.punch_hole(at(block)..at(block + 1)).unwrap()),
        );
        // The freed clusters can be allocated, and are.
        volume.create_direct("/other").unwrap().sync_all().unwrap();
        leave_blocks(&volume, -1000);
        buffered.sync_data().expect("accepted data can be written back");
        assert_eq!(blocks_of(&file, 14), [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2]);
    });
}
