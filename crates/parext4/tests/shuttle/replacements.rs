//! Files that replace another file without a sync, against write-back and crashes.

use std::sync::Arc;

use parext4::fault::Fault;
use parext4::models::write_back_turn;
use parext4::{DirectFile, SplitAt};

use super::support::*;
use testkit::volume::DirectFiles as _;

/// Sectors in a page.
const PAGE: usize = 4096 / SECTOR;

fn write_page(file: &DirectFile, byte: u8, page: usize) {
    let buffered = file.buffered().unwrap();
    buffered.write_all_at(&[byte; PAGE * SECTOR], (page * PAGE * SECTOR) as u64).unwrap();
}

/// The write and the rename run while a write-back thread checks whether the file is clean.
#[test]
fn a_rename_knows_a_dirty_file_that_write_back_checks() {
    check(100, &[Fault::UnlistedWhileChecked], |image| {
        let device = Arc::new(image.fork());
        let volume = Arc::new(open_quiet(Arc::clone(&device), SplitAt::default()));
        let (old, new) = (volume.create_direct("/f").unwrap(), volume.create_direct("/new").unwrap());
        write(&old, 1, 1, 0);
        write_page(&new, 2, 0);
        let write_back = {
            let volume = Arc::clone(&volume);
            move |_: &DirectFile| assert!(write_back_turn(&volume, 1).is_ok())
        };
        let replace = {
            let volume = Arc::clone(&volume);
            move |f: &DirectFile| {
                write_page(f, 2, 1);
                // In most schedules write-back has passed the first page by then.
                yield_randomly(300);
                volume.rename("/new", "/f").unwrap();
            }
        };
        race(&new, write_back, replace);
        // Commits without writing back.
        volume.abort().unwrap();
        let (_volume, after) = after_crash(&device, "/f");
        assert_eq!(sectors(&read(&after, 3 * PAGE, 0)), [2; 2 * PAGE], "the new contents are not whole");
    });
}
