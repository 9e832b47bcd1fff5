//! Reading all attributes of an inode in one pass.

use std::time::{Duration, Instant};

use super::{Image, KINDS, VALUE_KINDS, file, full_list};
use parext4::{Error, InodeRef, XattrMode};

fn visited(node: &InodeRef) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let visit = |xattr: &parext4::XattrRef<'_>| -> Result<(), Error> {
        all.push((xattr.name().to_vec(), xattr.value()?));
        Ok(())
    };
    node.visit_xattrs(visit).unwrap();
    all
}

#[test]
fn a_visit_returns_what_list_and_get_return() {
    for kind in [KINDS[1], VALUE_KINDS[0]] {
        let Some(image) = Image::mke2fs(8, kind) else { return };
        let volume = image.open();
        let node = file(&volume, "file");
        for (name, len) in [("user.a", 0), ("user.b", 300), ("trusted.c", 80), ("user.large", 5000)] {
            let _ = node.set_xattr(name.as_bytes(), &vec![7; len], XattrMode::Any);
        }
        node.set_xattr(b"system.posix_acl_access", &full_list(), XattrMode::Any).unwrap();
        let names = node.list_xattr().unwrap();
        let values = names.iter().map(|name| node.get_xattr(name).unwrap().unwrap());
        assert!(names.len() >= 4);
        assert_eq!(visited(&node), names.iter().cloned().zip(values).collect::<Vec<_>>());
    }
}

/// A call of `get_xattr` for each name would take some hundred times as long as a list of the
/// names.
#[test]
fn a_visit_of_many_attributes_reads_them_once() {
    let Some(image) = Image::mke2fs(64, &["-b", "65536"]) else { return };
    let volume = image.open();
    let node = file(&volume, "file");
    for n in 0..800 {
        node.set_xattr(format!("user.{n}").as_bytes(), b"v", XattrMode::Create).unwrap();
    }
    let shortest = |run: &dyn Fn() -> usize| -> Duration {
        let time = || {
            let began = Instant::now();
            assert_eq!(run(), 800);
            began.elapsed()
        };
        (0..10).map(|_| time()).min().unwrap()
    };
    let list = shortest(&|| node.list_xattr().unwrap().len());
    let visit = shortest(&|| visited(&node).len());
    assert!(visit < 40 * list, "{visit:?}, while a list takes {list:?}");
}

/// As the kernel, which no program can ask for a longer value. The size is in the entry, so the
/// value need not be read.
#[test]
fn a_value_longer_than_the_limit_of_programs_is_not_read() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", "ea_inode,^metadata_csum,^has_journal"]) else {
        return;
    };
    let volume = image.open();
    let node = file(&volume, "file");
    node.set_xattr(b"user.v", &[5; 65536], XattrMode::Any).unwrap();
    let value = node.ino().get() + 1;
    drop(node);
    volume.close().unwrap();
    // The number of the value's inode and its size, in the entry.
    let mut bytes = std::fs::read(image.path()).unwrap();
    let entry = [value.to_le_bytes(), 65536_u32.to_le_bytes()].concat();
    let places: Vec<usize> = (0..bytes.len() - 8).filter(|&at| bytes[at..at + 8] == entry[..]).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + 4..at + 8].copy_from_slice(&(1_u32 << 24).to_le_bytes());
    }
    std::fs::write(image.path(), bytes).unwrap();
    let volume = image.open();
    let node = volume.resolve("/file").unwrap();
    let too_big = |result: Result<(), Error>| assert!(matches!(result, Err(Error::TooBig(_))), "{result:?}");
    too_big(node.get_xattr(b"user.v").map(drop));
    let mut len = 0;
    node.visit_xattrs(|xattr| -> Result<(), Error> {
        len = xattr.stored_len();
        too_big(xattr.value().map(drop));
        Ok(())
    })
    .unwrap();
    assert_eq!(len, 1 << 24);
}
