//! Contents that lie in the inode ([`InodeFlags::INLINE_DATA`]): the bytes of `i_block`, and then
//! the value of the attribute `system.data`.
//!
//! The attribute exists even if its value is empty. Its value ends with the contents, or later. A
//! file may also be larger than its contents, and then ends with a hole. Source: kernel
//! documentation, "Inline Data".

use super::{Inode, InodeFlags};
use crate::dir_entry::inline::INLINE_BLOCK;
use crate::error::{FormatError, Result};
use crate::xattr::{self, Xattr};

impl Inode {
    /// Returns the contents in the inode, at least [`INLINE_BLOCK`] bytes.
    ///
    /// # Errors
    /// The inode has no attribute for contents, or its attributes are malformed.
    pub fn inline_contents(&self) -> Result<Vec<u8>> {
        let value = self.inline_value()?;
        Ok([&self.block, &self.xattr_area()[value]].concat())
    }

    /// Returns the number of bytes that the contents can have beside the inode's other attributes.
    ///
    /// # Errors
    /// As [`inline_contents`](Self::inline_contents).
    pub fn inline_capacity(&self) -> Result<usize> {
        self.inline_value()?;
        let list = xattr::parse_ibody(self.xattr_area())?;
        Ok(INLINE_BLOCK + xattr::inline_room(&list, self.xattr_area().len()).unwrap_or(0))
    }

    /// Replaces the contents; the attribute's value ends with them. Returns false, and changes
    /// nothing, if they do not fit.
    ///
    /// # Errors
    /// As [`inline_contents`](Self::inline_contents).
    pub fn set_inline_contents(&mut self, contents: &[u8]) -> Result<bool> {
        self.inline_value()?;
        Ok(self.store_inline(contents, xattr::parse_ibody(self.xattr_area())?))
    }

    /// Returns `i_block` and the attribute's value, for changes in place.
    ///
    /// # Errors
    /// As [`inline_contents`](Self::inline_contents).
    pub fn inline_parts_mut(&mut self) -> Result<(&mut [u8; INLINE_BLOCK], &mut [u8])> {
        let value = self.inline_value()?;
        let start = self.xattr_start();
        let area = self.image.get_mut(start..).unwrap_or_default();
        Ok((&mut self.block, area.get_mut(value).unwrap_or_default()))
    }

    /// Stores `contents` in a new inode. Returns false, and changes nothing, if it has no room for
    /// them beside the attributes `others`, which are set later.
    pub fn make_inline(&mut self, contents: &[u8], others: &[Xattr]) -> bool {
        let room = xattr::inline_room(others, self.xattr_area().len());
        let fits = room.is_some_and(|room| contents.len() <= INLINE_BLOCK + room)
            && self.store_inline(contents, Vec::new());
        if fits {
            self.flags.insert(InodeFlags::INLINE_DATA);
        }
        fits
    }

    /// Removes the contents, for an inode whose contents have been moved to blocks.
    ///
    /// # Errors
    /// As [`inline_contents`](Self::inline_contents).
    pub fn remove_inline(&mut self) -> Result<()> {
        let mut list = xattr::parse_ibody(self.xattr_area())?;
        list.retain(|xattr| !xattr::is_inline_data(xattr));
        // Fewer attributes always fit.
        if let Some(area) = xattr::encode_ibody(&list, self.xattr_area().len()) {
            self.xattr_area_mut().copy_from_slice(&area);
        }
        self.block = [0; INLINE_BLOCK];
        self.flags.remove(InodeFlags::INLINE_DATA);
        Ok(())
    }

    /// Replaces the attributes after the fields, except the one for contents in the inode. Returns
    /// false, and changes nothing, if they do not fit.
    ///
    /// # Errors
    /// As [`inline_contents`](Self::inline_contents).
    pub fn set_ibody_xattrs(&mut self, list: &[Xattr]) -> Result<bool> {
        let mut list = list.to_vec();
        if self.flags.contains(InodeFlags::INLINE_DATA) {
            let value = self.xattr_area()[self.inline_value()?].to_vec();
            list.retain(|xattr| !xattr::is_inline_data(xattr));
            list.push(xattr::inline_data(value));
        }
        Ok(self.store_ibody(&list))
    }

    fn inline_value(&self) -> Result<std::ops::Range<usize>> {
        xattr::inline_value(self.xattr_area())?.ok_or_else(|| {
            FormatError::new("inode", "system.data", "is missing, but the contents are in the inode")
        })
    }

    fn store_inline(&mut self, contents: &[u8], mut list: Vec<Xattr>) -> bool {
        let (first, rest) = contents.split_at(contents.len().min(INLINE_BLOCK));
        list.retain(|xattr| !xattr::is_inline_data(xattr));
        list.push(xattr::inline_data(rest.to_vec()));
        let stored = self.store_ibody(&list);
        if stored {
            self.block = [0; INLINE_BLOCK];
            self.block[..first.len()].copy_from_slice(first);
        }
        stored
    }

    fn store_ibody(&mut self, list: &[Xattr]) -> bool {
        let encoded = xattr::encode_ibody(list, self.xattr_area().len());
        if let Some(area) = &encoded {
            self.xattr_area_mut().copy_from_slice(area);
        }
        encoded.is_some()
    }
}
