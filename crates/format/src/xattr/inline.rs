//! The attribute `system.data`, which holds the contents of an inode that do not fit its `i_block`.

use std::ops::Range;

use super::{IBODY_HEADER, LIST_END, MAGIC, PAD, SYSTEM, Xattr, entry_len, find_end, raw_entry, value_of};
use crate::Result;

/// The name of the attribute after the prefix `system.`.
const NAME: &[u8] = b"data";

/// Returns the attribute `system.data` with this value.
#[must_use]
pub fn inline_data(value: Vec<u8>) -> Xattr {
    Xattr { name_index: SYSTEM, name: NAME.to_vec(), value: value.into() }
}

/// Returns true if `xattr` is `system.data`.
#[must_use]
pub fn is_inline_data(xattr: &Xattr) -> bool {
    (xattr.name_index, &xattr.name[..]) == (SYSTEM, NAME)
}

/// Returns where the value of `system.data` lies in the space after an inode's fields; `None` if
/// the inode has no such attribute.
///
/// # Errors
/// Names the field that is wrong.
pub fn inline_value(area: &[u8]) -> Result<Option<Range<usize>>> {
    const STRUCTURE: &str = "xattr in inode";
    if area.get(..IBODY_HEADER) != Some(&MAGIC.to_le_bytes()[..]) {
        return Ok(None);
    }
    let end = find_end(STRUCTURE, area, IBODY_HEADER)?;
    let mut offset = IBODY_HEADER;
    while offset < end {
        let (entry, name) = raw_entry(STRUCTURE, area, offset)?;
        if (entry.e_name_index, name) == (SYSTEM, NAME) {
            let len = value_of(STRUCTURE, area, entry, IBODY_HEADER, end)?.len();
            let start = if len == 0 { 0 } else { IBODY_HEADER + usize::from(entry.e_value_offs.get()) };
            return Ok(Some(start..start + len));
        }
        offset += entry_len(name.len());
    }
    Ok(None)
}

/// Returns the number of bytes that the value of `system.data` can have beside the other attributes
/// of `list`, in a space of `len` bytes after an inode's fields. `None` if there is no room for the
/// attribute.
#[must_use]
pub fn inline_room(list: &[Xattr], len: usize) -> Option<usize> {
    let others: usize = list.iter().filter(|xattr| !is_inline_data(xattr)).map(Xattr::stored_len).sum();
    // Four zero bytes end the list.
    let room = len.checked_sub(IBODY_HEADER + others + entry_len(NAME.len()) + LIST_END)?;
    Some(room - room % PAD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xattr::encode_ibody;

    #[test]
    fn the_room_is_what_can_be_encoded() {
        let other = |len: usize| Xattr { name_index: 1, name: b"abc".to_vec(), value: vec![7; len].into() };
        for len in [0, 20, 27, 28, 40, 92 + 4, 128, 3000] {
            for others in [vec![], vec![other(0)], vec![other(5), other(30)]] {
                let encodes = |value: usize| {
                    let mut list = others.clone();
                    list.push(inline_data(vec![1; value]));
                    encode_ibody(&list, len)
                };
                let Some(room) = inline_room(&others, len) else {
                    assert!(encodes(0).is_none(), "{len}");
                    continue;
                };
                assert!(encodes(room).is_some() && encodes(room + 1).is_none(), "{len}: {room}");
                let area = encodes(room).unwrap();
                let value = inline_value(&area).unwrap().unwrap();
                assert!(value.len() == room && area[value].iter().all(|&byte| byte == 1));
            }
        }
        assert_eq!(inline_room(&[], 96), Some(68), "in an inode of 256 bytes");
        assert_eq!(inline_value(&[0; 96]), Ok(None));
    }
}
