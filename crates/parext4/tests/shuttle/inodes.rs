//! Inodes that are evicted and read again, and found by name and by number while they are created
//! and deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parext4::fault::Fault;
use parext4::models::{leave_blocks, lose_link};
use parext4::server::ServerVolume as _;
use parext4::{Error, NewInode, SetAttributes, Volume};

use shuttle::rand::Rng;

use super::support::*;
use testkit::volume::DirectFiles as _;

/// Opens a volume that keeps only metadata in use in memory.
fn forgetful(image: &parext4::MemDevice) -> Volume {
    let options = options().metadata_cache_bytes(0);
    Volume::open_device(Arc::new(YieldingDevice(Arc::new(image.fork()))), &options).expect("the image opens")
}

#[test]
fn there_is_one_inode_in_memory_for_each_on_the_device() {
    check(100, &[Fault::LoadTwice], |image| {
        let volume = forgetful(image);
        let id = volume.create_direct("/f").unwrap().inode_ref().id();
        volume.sync().unwrap();
        // Another inode, which makes room for itself by evicting the first.
        volume.create_direct("/other").unwrap();
        volume.sync().unwrap();
        let set = |change: SetAttributes, by_name: bool| {
            let volume = volume.clone();
            shuttle::thread::spawn(move || {
                let node = if by_name { volume.resolve("/f") } else { volume.inode_ref(id) };
                node.unwrap().set_attributes(&change).unwrap();
            })
        };
        let threads = [set(SetAttributes::new().uid(2), true), set(SetAttributes::new().gid(2), false)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let metadata = volume.metadata("/f").unwrap();
        assert_eq!((metadata.uid, metadata.gid), (2, 2), "a change is lost");
    });
}

#[test]
fn a_deleted_inode_is_not_found_by_its_number() {
    check(200, &[Fault::ForgetBeforeFree], |image| {
        let volume = forgetful(image);
        let id = volume.create_direct("/f").unwrap().inode_ref().id();
        volume.sync().unwrap();
        let unlinked = Arc::new(AtomicBool::new(false));
        let looking = {
            let (volume, unlinked) = (volume.clone(), Arc::clone(&unlinked));
            shuttle::thread::spawn(move || {
                loop {
                    let was_unlinked = unlinked.load(Ordering::SeqCst);
                    match volume.inode_ref(id) {
                        Ok(node) => assert!(!was_unlinked && node.id() == id, "a deleted inode is found"),
                        Err(Error::NotFound(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                    if was_unlinked {
                        return;
                    }
                    shuttle::thread::yield_now();
                }
            })
        };
        let root = volume.root().unwrap();
        root.unlink(b"f").unwrap();
        unlinked.store(true, Ordering::SeqCst);
        if shuttle::rand::thread_rng().gen_bool(0.5) {
            // The number is reused while the other thread searches for it.
            root.create(b"g", &NewInode::new()).unwrap();
        }
        looking.join().unwrap();
        let next = root.create(b"h", &NewInode::new()).unwrap();
        assert!(next.id() != id && matches!(volume.inode_ref(id), Err(Error::NotFound(_))));
    });
}

#[test]
fn an_inode_with_more_names_than_links_is_deleted_once() {
    check(200, &[Fault::NamedUnlocked], |image| {
        let volume = volume(image);
        let root = volume.root().unwrap();
        let node = root.create(b"a", &NewInode::new()).unwrap();
        let dir = root.mkdir(b"dir", &NewInode::new()).unwrap();
        dir.link(b"b", &node).unwrap();
        lose_link(&node);
        drop(node);
        let looking = shuttle::thread::spawn(move || {
            // If it is found, this thread deletes it.
            let _ = dir.lookup(b"b");
        });
        root.unlink(b"a").unwrap();
        // The number may be reused while the other thread uses the name.
        let new = root.create(b"c", &NewInode::new()).unwrap();
        looking.join().unwrap();
        let next = root.create(b"d", &NewInode::new()).unwrap();
        assert_ne!(next.ino(), new.ino(), "the inode was deleted twice, the second time as another one");
    });
}

/// One thread looks up a number while another creates, commits and deletes an inode of that number.
#[test]
fn a_deleted_inode_read_from_the_device_is_not_cached() {
    check(100, &[Fault::InsertUnmarked], |image| {
        let options = options().metadata_cache_bytes(0);
        let volume = Volume::open_device(Arc::new(image.fork()), &options).expect("the image opens");
        let root = volume.root().unwrap();
        let old = root.create(b"old", &NewInode::new()).unwrap().id();
        root.unlink(b"old").unwrap();
        volume.sync().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let looking = {
            let (volume, over) = (volume.clone(), Arc::clone(&over));
            shuttle::thread::spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    assert!(matches!(volume.inode_ref(old), Err(Error::NotFound(_))));
                    shuttle::thread::yield_now();
                }
            })
        };
        let new = root.create(b"new", &NewInode::new()).unwrap().id();
        volume.sync().unwrap();
        root.unlink(b"new").unwrap();
        over.store(true, Ordering::SeqCst);
        looking.join().unwrap();
        assert_eq!(new.ino, old.ino);
        assert!(matches!(volume.inode_ref(new), Err(Error::NotFound(_))), "a deleted inode is found");
    });
}

/// The number of a directory that gets no block is free again. If another thread had a reference to
/// the directory, its drop would free the number a second time.
#[test]
fn an_inode_whose_creation_fails_is_not_found_by_its_number() {
    check(100, &[Fault::LinksBeforeContents], |image| {
        let volume = volume(image);
        let root = volume.root().unwrap();
        let ino = root.create(b"f", &NewInode::new()).unwrap().ino();
        root.unlink(b"f").unwrap();
        volume.sync().unwrap();
        leave_blocks(&volume, NOTHING);
        let over = Arc::new(AtomicBool::new(false));
        let looking = {
            let (volume, over) = (volume.clone(), Arc::clone(&over));
            shuttle::thread::spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    let found = volume.inode_by_number(ino);
                    assert!(matches!(found, Err(Error::NotFound(_))), "an inode without contents is found");
                    shuttle::thread::yield_now();
                }
            })
        };
        assert!(matches!(root.mkdir(b"d", &NewInode::new()), Err(Error::NoSpace)));
        over.store(true, Ordering::SeqCst);
        looking.join().unwrap();
        assert_eq!(root.create(b"f", &NewInode::new()).unwrap().ino(), ino, "the number is free");
    });
}
