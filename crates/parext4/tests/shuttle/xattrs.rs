//! Attributes of one inode, changed by several threads.

use parext4::XattrMode;
use parext4::fault::Fault;

use super::support::*;

#[test]
fn no_change_of_an_attribute_is_lost() {
    check(200, &[Fault::XattrsUnheld], |image| {
        let volume = volume(image);
        let file = volume.create("/f", 0o644).unwrap();
        let set = |name: &'static [u8], len: usize| {
            move |f: &parext4::File| f.node().set_xattr(name, &vec![1; len], XattrMode::Create).unwrap()
        };
        // One in the inode, two in its block.
        let third = spawn(&file, set(b"user.c", 300));
        race(&file, set(b"user.a", 10), set(b"user.b", 200));
        third.join().unwrap();
        for (name, len) in [(b"user.a", 10), (b"user.b", 200), (b"user.c", 300)] {
            let value = file.node().get_xattr(name).unwrap();
            assert!(value.is_some_and(|value| value.len() == len), "an attribute is lost");
        }
    });
}

#[test]
fn an_attribute_that_moves_is_always_found() {
    check(200, &[Fault::XattrsUnheld], |image| {
        let volume = volume(image);
        let file = volume.create("/f", 0o644).unwrap();
        file.node().set_xattr(b"user.a", &[0; 300], XattrMode::Any).unwrap();
        race(
            &file,
            |f| {
                for len in [10, 300, 20] {
                    f.node().set_xattr(b"user.a", &vec![0; len], XattrMode::Replace).unwrap();
                }
            },
            |f| {
                for _ in 0..3 {
                    let value = f.node().get_xattr(b"user.a").unwrap().expect("it is there all the time");
                    assert!(matches!(value.len(), 10 | 20 | 300));
                }
            },
        );
    });
}
