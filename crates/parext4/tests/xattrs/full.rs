//! Attributes on a volume without free blocks: an error, and nothing changes.

use super::{Image, file, full_list, names};
use parext4::{Error, FileSize, NewInode, XattrMode};
use testkit::volume::DirectFiles as _;

#[test]
fn without_free_blocks_nothing_changes() {
    for journal in ["has_journal", "^has_journal"] {
        let Some(image) = Image::mke2fs(8, &["-b", "1024", "-I", "128", "-O", journal]) else { return };
        let volume = image.open();
        let (root, node) = (volume.root().unwrap(), file(&volume, "file"));
        let dir = root.mkdir(b"dir", &NewInode::new()).unwrap();
        dir.set_xattr(b"system.posix_acl_default", &full_list(), XattrMode::Any).unwrap();
        let full = volume.create_direct("/full").unwrap();
        let mut chunk = 1 << 20;
        let mut at = 0;
        while chunk >= 1024 {
            match full.allocate(at..at + chunk, FileSize::Extend) {
                Ok(()) => at += chunk,
                Err(Error::NoSpace) => chunk /= 2,
                Err(error) => panic!("{error}"),
            }
        }
        let space = volume.space();
        assert!(matches!(node.set_xattr(b"user.a", b"x", XattrMode::Any), Err(Error::NoSpace)));
        assert!(matches!(dir.create(b"child", &NewInode::new()), Err(Error::NoSpace)));
        assert!(matches!(dir.mkdir(b"child", &NewInode::new()), Err(Error::NoSpace)));
        assert_eq!((names(&node).len(), volume.space()), (0, space));
        // An inode with an attribute block can change it.
        dir.set_xattr(b"user.a", b"x", XattrMode::Any).unwrap();

        // One block is enough for a directory's attributes, but not for its entries.
        full.set_len(at - 1024).unwrap();
        volume.sync().unwrap();
        let space = volume.space();
        assert!(matches!(dir.mkdir(b"child", &NewInode::new()), Err(Error::NoSpace)));
        volume.sync().unwrap();
        assert_eq!(volume.space(), space);
        dir.create(b"one", &NewInode::new()).unwrap();
        assert!(matches!(dir.create(b"two", &NewInode::new()), Err(Error::NoSpace)));

        full.set_len(at - 4096).unwrap();
        // The operation waits for blocks that the next commit frees.
        node.set_xattr(b"user.a", b"x", XattrMode::Any).unwrap();
        dir.create(b"child", &NewInode::new()).unwrap();
        assert_eq!(names(&dir.lookup(b"child").unwrap()), ["system.posix_acl_access"]);
        drop((root, node, dir, full));
        volume.close().unwrap();
        image.fsck();
    }
}

#[test]
fn attributes_that_do_not_fit_change_nothing() {
    super::on_each_kind(|volume| {
        let node = file(volume, "file");
        let value = vec![1; volume.info().block_size as usize / 2];
        node.set_xattr(b"user.half", &value, XattrMode::Any).unwrap();
        for n in 0.. {
            let name = format!("user.{n}");
            match node.set_xattr(name.as_bytes(), &[2; 20], XattrMode::Create) {
                Ok(()) => assert_eq!(names(&node).len(), n + 2),
                Err(Error::NoSpace) => {
                    assert!(n > 8);
                    assert_eq!(names(&node).len(), n + 1);
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        let too_large = vec![3; volume.info().block_size as usize];
        assert!(matches!(node.set_xattr(b"user.half", &too_large, XattrMode::Replace), Err(Error::NoSpace)));
        assert_eq!(node.get_xattr(b"user.half").unwrap().unwrap(), value);
    });
}
