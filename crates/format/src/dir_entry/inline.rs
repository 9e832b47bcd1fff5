//! Directories whose entries lie in the inode.
//!
//! The contents begin with the number of the parent directory, in place of `.` and `..`. Two areas
//! of entries follow: the rest of `i_block`, and the value of the attribute `system.data`, which
//! may be empty. Each area is a chain like that of a block without a tail, and no entry crosses
//! from one to the other. Source: kernel documentation, "Inline Data".

use super::{
    HEADER, MIN_ENTRY, entries, find, find_room, init_dot_block, insert, remove, set_inode, set_rec_len,
    usable_len, write_entry, write_tail,
};
use crate::{FormatError, InodeNo, Result};

/// Bytes of contents in `i_block`; all further contents are in the attribute.
pub const INLINE_BLOCK: usize = 60;
/// Bytes of the parent's number.
const PARENT: usize = 4;
/// Bytes of `.` and `..` in a block.
const DOTS: usize = 2 * MIN_ENTRY;

/// Returns the contents of a new directory, without entries.
#[must_use]
pub fn empty(parent: InodeNo) -> [u8; INLINE_BLOCK] {
    let mut contents = [0; INLINE_BLOCK];
    contents[..PARENT].copy_from_slice(&parent.get().to_le_bytes());
    write_entry(&mut contents[PARENT..], InodeNo(0), 0, b"");
    contents
}

/// Returns the directory as a block without a tail: `.`, `..` and the entries. They have the
/// offsets that they keep when the kernel or [`move_to_block`] moves them to a block. `dir` is the
/// directory's own number.
///
/// # Errors
/// An area is not a chain of entries.
pub fn image(dir: InodeNo, contents: &[u8]) -> Result<Vec<u8>> {
    for area in areas(contents)? {
        entries(area, false).try_for_each(|entry| entry.map(drop))?;
    }
    let (parent, entries) = contents.split_at(PARENT);
    let parent = parent.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
    let mut image = vec![0; DOTS];
    init_dot_block(&mut image, false, dir, InodeNo(parent));
    image.extend_from_slice(entries);
    Ok(image)
}

/// Returns true if an entry with a name of `name_len` bytes has room.
///
/// # Errors
/// An area is not a chain of entries.
pub fn has_room(contents: &[u8], name_len: usize) -> Result<bool> {
    let [first, second] = areas(contents)?;
    Ok(find_room(first, false, name_len)?.is_some() || find_room(second, false, name_len)?.is_some())
}

/// Returns the contents extended to `len` bytes with an unused entry, for contents that end with
/// `i_block`. `None` if they do not, or if an entry does not fit the bytes that are added.
#[must_use]
pub fn extended(contents: &[u8], len: usize) -> Option<Vec<u8>> {
    let added = len.checked_sub(INLINE_BLOCK).filter(|added| *added >= MIN_ENTRY && added % 4 == 0)?;
    if contents.len() != INLINE_BLOCK {
        return None;
    }
    let mut contents = contents.to_vec();
    contents.resize(INLINE_BLOCK + added, 0);
    write_entry(&mut contents[INLINE_BLOCK..], InodeNo(0), 0, b"");
    Some(contents)
}

/// Fills the first block of a directory with its [`image`]; the last entry extends to the end.
///
/// # Errors
/// The image is not a chain of entries, or does not fit the block.
pub fn move_to_block(image: &[u8], block: &mut [u8], has_tail: bool) -> Result<()> {
    let end = usable_len(block.len(), has_tail);
    let mut last = 0;
    for entry in entries(image, false) {
        last = entry?.offset;
    }
    if image.len() > end {
        return Err(fail(format_args!("{} bytes of entries for {end} bytes of block", image.len())));
    }
    block.fill(0);
    block[..image.len()].copy_from_slice(image);
    set_rec_len(block, last, end - last);
    if has_tail {
        write_tail(block);
    }
    Ok(())
}

/// The entries of a directory in its inode, for changes in place.
#[derive(Debug)]
pub struct InlineEntries<'a> {
    parent: &'a mut [u8],
    areas: [&'a mut [u8]; 2],
}

impl<'a> InlineEntries<'a> {
    /// Returns the entries in `i_block` and in the value of `system.data`.
    #[must_use]
    pub fn new(block: &'a mut [u8; INLINE_BLOCK], value: &'a mut [u8]) -> Self {
        let (parent, first) = block.split_at_mut(PARENT);
        Self { parent, areas: [first, value] }
    }

    /// Sets the inode that `..` names.
    pub fn set_parent(&mut self, parent: InodeNo) {
        self.parent.copy_from_slice(&parent.get().to_le_bytes());
    }

    /// Adds an entry where there is room. Returns false if there is none. The caller has checked
    /// that `name` is new.
    ///
    /// # Errors
    /// An area is not a chain of entries; a name or an inode that no entry can have.
    pub fn insert(&mut self, ino: InodeNo, file_type: u8, name: &[u8]) -> Result<bool> {
        for area in self.areas.iter_mut().filter(|area| area.len() >= HEADER) {
            if insert(area, false, ino, file_type, name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes `name`. Returns false if there is no such entry.
    ///
    /// # Errors
    /// An area is not a chain of entries.
    pub fn remove(&mut self, name: &[u8]) -> Result<bool> {
        for area in &mut self.areas {
            if find(area, false, name)?.is_some() {
                return remove(area, false, name).map(|removed| removed.is_some());
            }
        }
        Ok(false)
    }

    /// Changes the inode of the entry `name`. Returns false if there is no such entry.
    ///
    /// # Errors
    /// An area is not a chain of entries; an inode that no entry can have.
    pub fn set_inode(&mut self, name: &[u8], ino: InodeNo, file_type: u8) -> Result<bool> {
        for area in &mut self.areas {
            if set_inode(area, false, name, ino, file_type)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn areas(contents: &[u8]) -> Result<[&[u8]; 2]> {
    let short = || fail(format_args!("{} bytes of a directory in the inode", contents.len()));
    let (block, value) = contents.split_at_checked(INLINE_BLOCK).ok_or_else(short)?;
    Ok([&block[PARENT..], value])
}

fn fail(problem: std::fmt::Arguments<'_>) -> FormatError {
    FormatError::new(super::STRUCTURE, "rec_len", problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeNo = InodeNo(20);

    fn names(image: &[u8]) -> Vec<Vec<u8>> {
        let used = entries(image, false).map(Result::unwrap).filter(|entry| entry.ino.get() != 0);
        used.map(|entry| entry.name.to_vec()).collect()
    }

    #[test]
    fn entries_fill_both_areas_and_move_to_a_block() {
        let mut contents = extended(&empty(InodeNo(2)), 60 + 68).unwrap();
        let (block, value) = contents.split_at_mut(60);
        let mut entries = InlineEntries::new(block.try_into().unwrap(), value);
        let mut added: Vec<Vec<u8>> = Vec::new();
        while entries.insert(InodeNo(30), 1, format!("name{}", added.len()).as_bytes()).unwrap() {
            added.push(format!("name{}", added.len()).into_bytes());
        }
        assert_eq!(added.len(), 3 + 4, "of 16 bytes each, in 56 and 68 bytes");
        assert!(entries.remove(b"name5").unwrap() && !entries.remove(b"name5").unwrap());
        assert!(entries.set_inode(b"name6", InodeNo(31), 2).unwrap());
        entries.set_parent(InodeNo(3));
        added.remove(5);
        assert!(has_room(&contents, 8).unwrap() && !has_room(&contents, 25).unwrap());
        let image = image(DIR, &contents).unwrap();
        let mut expected = vec![b".".to_vec(), b"..".to_vec()];
        expected.extend(added);
        assert_eq!(names(&image), expected);
        assert_eq!(find(&image, false, b"..").unwrap().unwrap().0.ino, InodeNo(3));
        let mut full = vec![0; 1024];
        move_to_block(&image, &mut full, true).unwrap();
        let moved = super::entries(&full, true).map(Result::unwrap).filter(|entry| entry.ino.get() != 0);
        assert_eq!(moved.map(|entry| entry.name.to_vec()).collect::<Vec<_>>(), expected);
        assert!(move_to_block(&image, &mut full[..128], false).is_err(), "too short");
    }

    #[test]
    fn a_chain_that_leaves_its_area_is_refused() {
        assert_eq!(names(&image(DIR, &empty(InodeNo(2))).unwrap()), [&b"."[..], b".."]);
        assert!(image(DIR, &[0; 59]).is_err() && image(DIR, &[0; 60]).is_err());
        let mut crossing = extended(&empty(InodeNo(2)), 60 + 12).unwrap();
        crossing[PARENT + 4] = 56 + 12;
        assert!(image(DIR, &crossing).is_err(), "an entry goes on in the second area");
        let mut short = empty(InodeNo(2)).to_vec();
        short.extend([0; 8]);
        assert!(image(DIR, &short).is_err() && has_room(&short, 200).is_err());
        assert!(extended(&short, 100).is_none() && extended(&empty(InodeNo(2)), 68).is_none());
    }
}
