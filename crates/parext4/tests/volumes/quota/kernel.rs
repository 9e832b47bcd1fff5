//! The kernel and parext4 in turn: each goes on counting where the other one has ended.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use parext4::QuotaKind;
use testkit::Image;
use testkit::rng::Rng;
use testkit::settings;

use super::{ALL, workload};

#[test]
fn the_kernel_and_parext4_count_in_turn() {
    let seed = settings::seed("quotas in turn");
    for (format, options) in
        (0..).zip([["-b", "1024", "-O", "ea_inode"], ["-b", "4096", "-O", "^metadata_csum"]])
    {
        let Some(image) = Image::mke2fs(24, &[&ALL[..], &options].concat()) else { return };
        let mut rng = Rng::new(seed, format);
        workload::begin(&image.open());
        for _ in 0..2 {
            image.with_kernel(|root| change_by_kernel(root, &mut rng));
            image.fsck();
            let volume = image.open();
            for _ in 0..80 {
                workload::change(&volume, &mut rng);
            }
            volume.close().unwrap();
            image.fsck();
        }
        let volume = image.open();
        let projects = volume.quotas(QuotaKind::Project).unwrap().unwrap();
        assert!(projects.iter().any(|project| project.id == 77 && project.inodes > 0));
    }
}

/// Makes changes as several owners.
fn change_by_kernel(root: &Path, rng: &mut Rng) {
    for nth in 0..20_u32 {
        let path = root.join(format!("d{}/k{nth}", nth % 2));
        if rng.chance(20) {
            let _ = std::fs::remove_file(&path);
            continue;
        }
        std::fs::write(&path, vec![3; usize::try_from(rng.log_uniform(60_000)).unwrap()]).unwrap();
        chown(&path, Some(nth % 5 * 1000), Some(nth % 3)).unwrap();
    }
    assert!(std::fs::metadata(root).unwrap().blocks() > 0);
}
