//! Attributes of one inode, changed by several threads.

use std::io::IoSlice;
use std::sync::Arc;

use parext4::fault::Fault;
use parext4::{Device, Error, MemDevice, SplitAt, XattrMode};

use super::support::*;
use testkit::volume::DirectFiles as _;

#[test]
fn no_change_of_an_attribute_is_lost() {
    check(200, &[Fault::XattrsUnlocked], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        let set = |name: &'static [u8], len: usize| {
            move |f: &parext4::DirectFile| {
                f.inode_ref().set_xattr(name, &vec![1; len], XattrMode::Create).unwrap()
            }
        };
        // One attribute in the inode, two in its block.
        let third = spawn(&file, set(b"user.c", 300));
        race(&file, set(b"user.a", 10), set(b"user.b", 200));
        third.join().unwrap();
        for (name, len) in [(b"user.a", 10), (b"user.b", 200), (b"user.c", 300)] {
            let value = file.inode_ref().get_xattr(name).unwrap();
            assert!(value.is_some_and(|value| value.len() == len), "an attribute is lost");
        }
    });
}

#[test]
fn an_attribute_that_moves_is_always_found() {
    check(200, &[Fault::XattrsUnlocked], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        file.inode_ref().set_xattr(b"user.a", &[0; 300], XattrMode::Any).unwrap();
        race(
            &file,
            |f| {
                for len in [10, 300, 20] {
                    f.inode_ref().set_xattr(b"user.a", &vec![0; len], XattrMode::Replace).unwrap();
                }
            },
            |f| {
                for _ in 0..3 {
                    let value =
                        f.inode_ref().get_xattr(b"user.a").unwrap().expect("the attribute always exists");
                    assert!(matches!(value.len(), 10 | 20 | 300));
                }
            },
        );
    });
}

/// Makes a file with the names `/f` and `/d/g` whose attribute block cannot be read.
fn damaged(image: &MemDevice) -> Arc<MemDevice> {
    let device = Arc::new(image.fork());
    let volume = open_quiet(Arc::clone(&device), SplitAt::default());
    let file = volume.create_direct("/f").unwrap();
    file.inode_ref().set_xattr(b"user.a", &[1; 300], XattrMode::Any).unwrap();
    volume.create_dir("/d", 0o755).unwrap();
    // In another directory, so that its removal holds another lock.
    volume.hard_link("/f", "/d/g").unwrap();
    drop(file);
    volume.close().unwrap();
    let magic = [0, 0, 2, 0xea];
    let bytes = device.snapshot();
    for at in (0..bytes.len()).step_by(BLOCK).filter(|&at| bytes[at..at + 4] == magic) {
        device.write_at(at as u64, &[IoSlice::new(&[0xee; BLOCK])]).unwrap();
    }
    device
}

#[test]
fn the_last_name_of_an_inode_that_cannot_be_deleted_stays() {
    check(200, &[Fault::LinksUnlocked], |image| {
        let volume = open(damaged(image));
        let unlink = |name: &'static str| {
            let volume = volume.clone();
            shuttle::thread::spawn(move || volume.remove_file(name))
        };
        let removed = [unlink("/f"), unlink("/d/g")].map(|thread| thread.join().unwrap());
        assert_eq!(removed.iter().filter(|result| result.is_ok()).count(), 1, "{removed:?}");
        assert!(removed.iter().any(|result| matches!(result, Err(Error::Corrupt(_)))), "{removed:?}");
    });
}
