//! Targets of symbolic links: up to 59 bytes in the inode, longer ones in a block. Other programs
//! also store longer ones in the inode, as the contents of small files.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use parext4_format::inode::FileType;
use parext4_format::{BlockRange, FileBlock, no_key_name};

use crate::engine::EngineRef;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode_ref::InodeRef;
use crate::journal::Handle;
use crate::mapping::BlockState;
use crate::meta::BlockKind;
use crate::sync::Arc;

/// Size of `i_block` in bytes, which also contains a NUL after the target.
const INLINE: usize = 60;
/// Maximum length of a path on Linux, without its NUL.
const MAX_TARGET: u64 = 4095;

/// Checks the target of a new link.
pub(super) fn check_target(target: &[u8], block_size: u64) -> Result<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(Error::invalid("a symbolic link's target is empty or contains NUL"));
    }
    if target.len() as u64 > MAX_TARGET.min(block_size - 1) {
        return Err(Error::NameTooLong("a symbolic link's target".to_owned()));
    }
    Ok(())
}

/// Returns true if the target fits the inode.
pub(super) fn is_short(target: &[u8]) -> bool {
    target.len() < INLINE
}

/// Writes a target into a new block.
pub(super) fn write_target(
    engine: &EngineRef,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    target: &[u8],
) -> Result<()> {
    let first = BlockRange::of_block(FileBlock::ZERO);
    if engine.add_blocks(handle, inode, first, true, engine.credentials())? < 1 {
        return Err(Error::NoSpace);
    }
    let BlockState::Written(block) = engine.block_map(inode)?.state_of(FileBlock::ZERO)? else {
        return Err(Error::corrupt(format_args!("symbolic link {}: its block is lost", inode.ino())));
    };
    let block = engine.cache().create(block, BlockKind::Symlink(inode.ino()))?;
    handle.change(&block, |bytes| {
        bytes.fill(0);
        bytes[..target.len()].copy_from_slice(target);
    });
    Ok(())
}

impl InodeRef {
    /// Returns the target of a symbolic link. Of an encrypted one, the form in which the kernel
    /// shows it without the key.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let link = volume.symlink("/link", "target")?;
    /// assert_eq!(link.read_link()?, std::path::Path::new("target"));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if this is not a symbolic link; corruption. Blocks on a read if the
    /// target is in a block that is not in memory.
    pub fn read_link(&self) -> Result<PathBuf> {
        Ok(OsString::from_vec(self.link_target()?).into())
    }

    /// Returns the bytes of [`read_link`](Self::read_link).
    pub(crate) fn link_target(&self) -> Result<Vec<u8>> {
        self.engine.in_flight().check_open()?;
        if self.file_type() != FileType::Symlink {
            return Err(Error::invalid(format_args!("inode {} is no symbolic link", self.ino())));
        }
        self.read_target().map_err(|error| self.engine.health().note(self.ino(), error))
    }

    fn read_target(&self) -> Result<Vec<u8>> {
        let corrupt = |what| Error::corrupt(format_args!("symbolic link {}: {what}", self.ino()));
        if self.inode.is_encrypted() {
            return self.read_encrypted_target();
        }
        let len = usize::try_from(self.inode.size()).map_err(|_| corrupt("i_size is out of range"))?;
        {
            let core = self.inode.core();
            if core.is_fast_symlink() {
                return core.block.get(..len).map(<[u8]>::to_vec).ok_or_else(|| corrupt("i_size"));
            }
        }
        if let Some(contents) = self.engine.inline_contents(&self.inode)? {
            let target = contents.get(..len).filter(|target| !target.is_empty());
            return target.map(<[u8]>::to_vec).ok_or_else(|| corrupt("i_size is out of range"));
        }
        if len == 0 || len as u64 >= self.engine.block_size() {
            return Err(corrupt("i_size is out of range"));
        }
        let bytes = self.read_target_block()?;
        bytes.get(..len).map(<[u8]>::to_vec).ok_or_else(|| corrupt("i_size is out of range"))
    }

    /// Returns the no-key form of an encrypted target. The target is the length of the encrypted
    /// bytes, in 16 bits, and the bytes.
    fn read_encrypted_target(&self) -> Result<Vec<u8>> {
        let core = self.inode.core();
        let (is_fast, inline) = (core.is_fast_symlink(), core.block);
        drop(core);
        let bytes = if is_fast { inline.to_vec() } else { self.read_target_block()? };
        let stored =
            bytes.split_first_chunk().and_then(|(len, rest)| rest.get(..u16::from_le_bytes(*len).into()));
        match stored {
            Some(stored) if stored.len() >= no_key_name::MIN_ENCRYPTED => {
                Ok(no_key_name::encode((0, 0), stored))
            }
            _ => Err(Error::corrupt(format_args!(
                "symbolic link {}: its encrypted target is too short",
                self.ino()
            ))),
        }
    }

    fn read_target_block(&self) -> Result<Vec<u8>> {
        let BlockState::Written(block) = self.engine.block_map(&self.inode)?.state_of(FileBlock::ZERO)?
        else {
            return Err(Error::corrupt(format_args!("symbolic link {}: it has no block", self.ino())));
        };
        Ok(self.engine.cache().read(block, BlockKind::Symlink(self.ino()))?.snapshot().to_vec())
    }

    /// Returns the size of the link: the length of what [`read_link`](Self::read_link) returns.
    pub(super) fn shown_size(&self) -> u64 {
        let size = self.inode.size();
        if self.file_type() != FileType::Symlink || !self.inode.is_encrypted() {
            return size;
        }
        // The length of the encrypted target takes two bytes.
        let len = usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(2);
        no_key_name::encoded_len(len) as u64
    }
}
