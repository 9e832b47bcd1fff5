//! Tests of linear directory blocks.

use proptest::prelude::*;

use super::*;

const INO: InodeNo = InodeNo(12);

fn names(block: &[u8], has_tail: bool) -> Vec<Vec<u8>> {
    let entries = entries(block, has_tail).map(Result::unwrap);
    entries.filter(|entry| entry.ino.get() != 0).map(|entry| entry.name.to_vec()).collect()
}

/// Returns the largest [`entry_size`] that there is room for.
fn free_space(block: &[u8], has_tail: bool) -> usize {
    let used = |entry: &DirEntry<'_>| if entry.ino.get() == 0 { 0 } else { entry_size(entry.name.len()) };
    let slack = |entry: DirEntry<'_>| entry.rec_len - used(&entry);
    entries(block, has_tail).map(Result::unwrap).map(slack).max().unwrap_or(0)
}

#[test]
fn a_new_directory_has_dot_and_dotdot() {
    for has_tail in [false, true] {
        let mut block = vec![0xaa; 1024];
        init_dot_block(&mut block, has_tail, INO, InodeNo::ROOT);
        assert_eq!(names(&block, has_tail), [b".".to_vec(), b"..".to_vec()]);
        assert!(is_empty_dir_block(&block, has_tail).unwrap());
        assert_eq!(free_space(&block, has_tail), usable_len(1024, has_tail) - 24);
        assert!(set_inode(&mut block, has_tail, b"..", InodeNo(7), TYPE_DIR).unwrap());
        assert_eq!(find(&block, has_tail, b"..").unwrap().unwrap().0.ino, InodeNo(7));
        assert!(insert(&mut block, has_tail, INO, 1, b"a").unwrap());
        assert!(!is_empty_dir_block(&block, has_tail).unwrap());
    }
}

#[test]
fn entries_stay_in_place() {
    let mut block = vec![0; 1024];
    init_block(&mut block, true);
    for name in [b"one".as_slice(), b"two", b"three"] {
        assert!(insert(&mut block, true, INO, 1, name).unwrap());
    }
    let three = find(&block, true, b"three").unwrap().unwrap().0.offset;
    assert_eq!(remove(&mut block, true, b"two").unwrap(), Some(INO));
    assert_eq!(remove(&mut block, true, b"two").unwrap(), None);
    assert_eq!(remove(&mut block, true, b"one").unwrap(), Some(INO));
    // The first entry is unused, and covers what were two.
    let first = entries(&block, true).next().unwrap().unwrap();
    assert_eq!((first.ino, first.rec_len), (InodeNo(0), 24));
    assert_eq!(find(&block, true, b"three").unwrap().unwrap().0.offset, three);
    assert!(insert(&mut block, true, INO, 1, b"0123456789abcdef").unwrap());
    assert_eq!(names(&block, true), [b"0123456789abcdef".to_vec(), b"three".to_vec()]);
}

#[test]
fn an_entry_with_a_new_neighbour_is_found_again() {
    let mut block = vec![0; 1024];
    init_block(&mut block, true);
    for name in [b"one".as_slice(), b"two", b"three", b"four"] {
        assert!(insert(&mut block, true, INO, 1, name).unwrap());
    }
    let position = find(&block, true, b"three").unwrap().unwrap().1;
    assert_eq!(remove(&mut block, true, b"two").unwrap(), Some(INO));
    // First the previous entry is removed, then another entry replaces this one.
    let mut other = block.clone();
    assert_eq!(remove_at(&mut other, true, position, b"three").unwrap(), Some(INO));
    assert!(insert(&mut block, true, INO, 1, b"2").unwrap());
    assert_eq!(remove_at(&mut block, true, position, b"four").unwrap(), Some(INO));
    assert_eq!(remove_at(&mut block, true, position, b"three").unwrap(), Some(INO));
    assert_eq!(remove_at(&mut block, true, position, b"three").unwrap(), None);
    assert_eq!(names(&block, true), [b"one".to_vec(), b"2".to_vec()]);
    assert_eq!(names(&other, true), [b"one".to_vec(), b"four".to_vec()]);
}

#[test]
fn a_place_without_room_takes_nothing() {
    let mut block = sample();
    assert_eq!(find_room(&block, false, 1), Ok(Some(16)));
    assert_eq!(find_room(&block, false, 41), Ok(None));
    assert_eq!(insert_at(&mut block, false, 0, INO, 1, b"b"), Ok(false));
    assert!(insert_at(&mut block, false, 60, INO, 1, b"b").is_err());
    assert_eq!(block, sample());
    assert_eq!(insert_at(&mut block, false, 16, INO, 1, b"b"), Ok(true));
    assert_eq!(names(&block, false), [b"a".to_vec(), b"b".to_vec()]);
}

#[test]
fn the_tail_guards_the_block() {
    let seed = ChecksumSeed(5);
    let mut block = vec![0; 1024];
    init_block(&mut block, true);
    assert_eq!(verify_tail(seed, &block).unwrap_err().field, "checksum");
    seal_tail(seed, &mut block);
    assert_eq!(verify_tail(seed, &block), Ok(()));
    assert!(insert(&mut block, true, INO, 1, b"x").unwrap());
    assert_eq!(verify_tail(seed, &block).unwrap_err().field, "checksum");
    block[1019] = 0;
    assert_eq!(verify_tail(seed, &block).unwrap_err().field, "det_reserved_ft");
    assert!(verify_tail(seed, &[0; 11]).is_err());
}

/// Returns a block of 64 bytes: an entry `a` of 16 bytes, then an unused one.
fn sample() -> [u8; 64] {
    let mut block = [0; 64];
    init_block(&mut block, false);
    assert!(insert(&mut block, false, INO, 1, b"a").unwrap());
    set_rec_len(&mut block, 0, 16);
    set_rec_len(&mut block, 16, 48);
    block
}

#[test]
fn each_check_names_its_field() {
    let error = |at: usize, value: u8| {
        let mut block = sample();
        block[at] = value;
        entries(&block, false).find_map(Result::err).expect("a broken entry")
    };
    assert_eq!(entries(&sample(), false).filter_map(Result::ok).count(), 2);
    assert!(error(4, 0).problem.contains("smaller"));
    assert!(error(4, 14).problem.contains("multiple"));
    assert_eq!(error(6, 9).field, "name_len");
    assert!(error(4, 68).problem.contains("crosses"));
    assert!(error(4, 60).problem.contains("too close"));
    assert_eq!(error(8, b'/').field, "name");
    assert_eq!(error(8, 0).field, "name");
    assert_eq!(error(6, 0).field, "name");
}

#[test]
fn new_entries_are_checked() {
    let mut block = sample();
    assert_eq!(insert(&mut block, false, INO, 1, &[b'x'; 256]).unwrap_err().field, "name_len");
    assert_eq!(insert(&mut block, false, INO, 1, b"a/b").unwrap_err().field, "name");
    assert_eq!(insert(&mut block, false, InodeNo(0), 1, b"b").unwrap_err().field, "inode");
    assert_eq!(insert(&mut block, false, INO, 1, &[b'x'; 60]), Ok(false));
    let list: [(InodeNo, u8, &[u8]); 2] = [(INO, 1, &[b'x'; 20]), (INO, 1, &[b'y'; 30])];
    assert_eq!(pack(&mut block, false, &list).unwrap_err().field, "rec_len");
    assert_eq!(block, sample());
}

#[test]
fn a_block_of_64_kib() {
    let mut block = vec![0; 1 << 16];
    init_block(&mut block, false);
    assert_eq!(entries(&block, false).next().unwrap().unwrap().rec_len, 1 << 16);
    assert!(insert(&mut block, false, INO, 1, b"a").unwrap());
    assert_eq!(names(&block, false), [b"a".to_vec()]);
}

fn a_name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(b'a'..b'e', 1..=40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn behaves_like_a_list(ops in prop::collection::vec((any::<bool>(), a_name()), 1..80), has_tail: bool) {
        let mut block = vec![0; 1024];
        init_block(&mut block, has_tail);
        let mut model = std::collections::BTreeSet::new();
        for (add, name) in ops {
            if !add {
                let removed = remove(&mut block, has_tail, &name).unwrap().is_some();
                prop_assert_eq!(removed, model.remove(&name));
            } else if !model.contains(&name) {
                let room = free_space(&block, has_tail) >= entry_size(name.len());
                prop_assert_eq!(insert(&mut block, has_tail, INO, 1, &name).unwrap(), room);
                if room {
                    model.insert(name);
                }
            }
            let mut found = names(&block, has_tail);
            found.sort();
            prop_assert_eq!(found, model.iter().cloned().collect::<Vec<_>>());
        }
        let list: Vec<(InodeNo, u8, &[u8])> = model.iter().map(|name| (INO, 1, name.as_slice())).collect();
        pack(&mut block, has_tail, &list).unwrap();
        prop_assert_eq!(names(&block, has_tail), model.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_name_of_no_bytes_names_nothing_and_does_no_harm() {
    let mut block = vec![0; 1024];
    init_block(&mut block, false);
    assert!(insert(&mut block, false, INO, 1, b"a").unwrap());
    // Of the entry, the length of the name.
    block[6] = 0;
    assert!(find(&block, false, b"").unwrap().is_some_and(|(entry, _)| entry.name.is_empty()));
    assert!(find(&block, false, b"a").unwrap().is_none());
}

/// A name between `.` and `..` is an error for e2fsck.
#[test]
fn room_after_the_first_entry_of_a_directory_stays() {
    let mut block = vec![0; 64];
    init_dot_block(&mut block, false, INO, INO);
    assert_eq!(find_room(&block, false, 1), Ok(Some(12)));
    // `..` at 24.
    block.copy_within(12..24, 24);
    block[12..24].fill(0);
    (block[4], block[28]) = (24, 40);
    assert_eq!(find(&block, false, b"..").unwrap().unwrap().0.ino, INO);
    assert_eq!(find_room(&block, false, 1), Ok(Some(24)));
    assert!(insert(&mut block, false, INO, 1, b"ab").unwrap());
    assert_eq!(names(&block, false), [b".".to_vec(), b"..".to_vec(), b"ab".to_vec()]);
}
