//! Encodes attributes: sorted entries from the start, values from the end.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use super::value::name_hash;
use super::{IBODY_HEADER, LIST_END, MAGIC, PAD, RawEntry, RawHeader, Value, Xattr, entry_len};

/// Encodes the space after an inode's fields, of `len` bytes. Returns `None` if the attributes do
/// not fit.
#[must_use]
pub fn encode_ibody(list: &[Xattr], len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    if !list.is_empty() {
        // Attributes in an inode are never shared, so they need no hash, unless an inode has the
        // value.
        let hash = |xattr: &Xattr| xattr.value.inode().map_or(0, |inode| inode.entry_hash);
        encode_entries(&mut bytes, list, IBODY_HEADER, IBODY_HEADER, hash)?;
        bytes[..IBODY_HEADER].copy_from_slice(&MAGIC.to_le_bytes());
    }
    Some(bytes)
}

/// Encodes an attribute block of `len` bytes for one inode, without its checksum. Returns `None` if
/// the attributes do not fit.
#[must_use]
pub fn encode_block(list: &[Xattr], len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut block_hash = 0_u32;
    encode_entries(&mut bytes, list, size_of::<RawHeader>(), 0, |xattr| {
        let hash = entry_hash(xattr);
        block_hash = block_hash.rotate_left(16) ^ hash;
        hash
    })?;
    if list.iter().any(|xattr| entry_hash(xattr) == 0) {
        // As in the kernel: a block whose hash is zero is never shared.
        block_hash = 0;
    }
    let header = RawHeader {
        h_magic: U32::new(MAGIC),
        h_refcount: U32::new(1),
        h_blocks: U32::new(1),
        h_hash: U32::new(block_hash),
        h_checksum: U32::ZERO,
        h_reserved: [U32::ZERO; 3],
    };
    header.write_to_prefix(&mut bytes).ok()?;
    Some(bytes)
}

/// Writes the entries from offset `start` and the values at the end; `e_value_offs` counts from
/// `base`.
fn encode_entries(
    bytes: &mut [u8],
    list: &[Xattr],
    start: usize,
    base: usize,
    mut hash: impl FnMut(&Xattr) -> u32,
) -> Option<()> {
    let mut sorted: Vec<&Xattr> = list.iter().collect();
    // The kernel searches a block in this order, and stops at the first entry after the name.
    sorted.sort_by_key(|xattr| (xattr.name_index, xattr.name.len(), &xattr.name));
    let (mut at, mut values) = (start, bytes.len());
    for xattr in sorted {
        let name = &xattr.name;
        let (value, ino, size) = match &xattr.value {
            Value::Bytes(value) => (&value[..], 0, value.len().try_into().ok()?),
            Value::Inode(inode) => (&[][..], inode.ino.get(), inode.size),
        };
        let next = at + entry_len(name.len());
        values = values.checked_sub(value.len().next_multiple_of(PAD))?;
        if next + LIST_END > values {
            return None;
        }
        let offset = match value.is_empty() {
            false => values - base,
            // An entry that starts with four zeros would end the list. The offset of an empty value
            // has no meaning.
            true if name.is_empty() && xattr.name_index == 0 => PAD,
            true => 0,
        };
        let entry = RawEntry {
            e_name_len: name.len().try_into().ok()?,
            e_name_index: xattr.name_index,
            e_value_offs: U16::new(offset.try_into().ok()?),
            e_value_inum: U32::new(ino),
            e_value_size: U32::new(size),
            e_hash: U32::new(hash(xattr)),
        };
        let names = at + size_of::<RawEntry>();
        bytes[at..names].copy_from_slice(entry.as_bytes());
        bytes[names..names + name.len()].copy_from_slice(name);
        bytes[values..values + value.len()].copy_from_slice(value);
        at = next;
    }
    Some(())
}

/// Computes `e_hash` of name and value.
fn entry_hash(xattr: &Xattr) -> u32 {
    let value = match &xattr.value {
        Value::Bytes(value) => value,
        Value::Inode(inode) => return inode.entry_hash,
    };
    value.chunks(PAD).fold(name_hash(&xattr.name), |hash, chunk| {
        let mut word = [0; PAD];
        word[..chunk.len()].copy_from_slice(chunk);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}
