//! Volumes of old and unusual geometry: what the kernel writes is read equal here and vice versa, and e2fsck finds no error
//! after changes.

mod change;
mod features;
mod hostile;
mod images;
mod snapshot;

use parext4::Error;

use change::{Changes, populate};
use images::{VOLUMES, make};
use snapshot::{of_kernel, of_volume};

/// The volumes are populated by the kernel, and changed here.
#[test]
fn what_the_kernel_writes_is_read_equal_and_vice_versa() {
    for (nth, volume) in VOLUMES.iter().enumerate() {
        let Some(image) = make(volume) else { return };
        let mut by_kernel = None;
        image.with_kernel(|root| {
            populate(root);
            by_kernel = Some(of_kernel(root));
        });
        let Some(by_kernel) = by_kernel else { return };
        let name = volume.name;
        let opened = image.open();
        assert_eq!(of_volume(&opened), by_kernel, "{name}");
        let mut changes = Changes::new(nth as u64);
        changes.make(&opened);
        let ours = of_volume(&opened);
        opened.close().unwrap();
        image.fsck();
        image.with_kernel(|root| {
            assert_eq!(of_kernel(root), ours, "{name}");
            std::fs::remove_dir_all(root.join("many")).unwrap();
            std::fs::write(root.join("by the kernel"), vec![7; 100_000]).unwrap();
        });
        image.fsck();
        let opened = image.open();
        assert!(matches!(opened.metadata("/many"), Err(Error::NotFound(_))), "{name}");
        assert_eq!(opened.read("/by the kernel").unwrap(), vec![7; 100_000], "{name}");
        changes.check(&opened);
        opened.close().unwrap();
    }
}
