//! Inodes: attributes, the 60 bytes of `i_block`, and the space for extended attributes after the
//! fields.
//!
//! An inode has at least 128 bytes. In a larger one `i_extra_isize` is the number of further bytes
//! that are fields; the rest stores extended attributes. Source: kernel documentation, "Index
//! Nodes".

mod file_type;
mod flags;
mod inline;
mod logged;
mod raw;
mod timestamp;
mod value;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromZeros, IntoBytes};

pub use file_type::FileType;
pub use flags::InodeFlags;
use raw::{BASE_SIZE, CHECKSUM_HI, CHECKSUM_LO, FIELDS_SIZE, RawInode};
pub use timestamp::Timestamp;

use crate::block_range::BlockRange;
use crate::checksum::ChecksumSeed;
use crate::convert::{length, low_16, low_32};
pub use crate::dir_entry::inline::INLINE_BLOCK;
use crate::error::{FormatError, Result};
use crate::features::{Incompat, RoCompat};
use crate::number::InodeNo;
use crate::superblock::Superblock;
use crate::xattr;

/// The smallest `i_extra_isize` with the upper half of the checksum.
const EXTRA_WITH_CHECKSUM_HI: u16 = 4;

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// The file type and permissions.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The size, in bytes.
    pub size: u64,
    /// Time of the last access.
    pub atime: Timestamp,
    /// Time of the last change of the inode.
    pub ctime: Timestamp,
    /// Time of the last change of the data.
    pub mtime: Timestamp,
    /// Time of creation.
    pub crtime: Timestamp,
    /// Time of deletion, in seconds since 1970; in the orphan list, the next orphan.
    pub dtime: u32,
    /// The number of names.
    pub links: u16,
    /// The space in use, in units of 512 bytes (the unit on the device may be a block).
    pub blocks: u64,
    /// The flags.
    pub flags: InodeFlags,
    /// The root of the extent tree, the target of a short symbolic link, a device number, or the
    /// first contents.
    pub block: [u8; 60],
    /// The generation of the inode number.
    pub generation: u32,
    /// The block of extended attributes; 0 if there is none.
    pub file_acl: u64,
    /// The change counter.
    pub version: u64,
    /// The number of bytes after the first 128 that are fields.
    pub extra_isize: u16,
    /// The project.
    pub projid: u32,
    /// All bytes of the inode as read. `encode` keeps the bytes that no field above covers.
    image: Box<[u8]>,
}

impl Inode {
    /// Parses inode `ino` from its [`Superblock::inode_size`] bytes; checks its checksum, that it
    /// has a file type, and that its size and `i_extra_isize` are possible. Fails for some inodes
    /// that are not in use.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn parse(bytes: &[u8], sb: &Superblock, ino: InodeNo) -> Result<Self> {
        let size = usize::from(sb.inode_size());
        let image = bytes.get(..size).ok_or_else(|| error("size", ino, format!("{} bytes", bytes.len())))?;
        let extra_isize = read_extra_isize(image, ino)?;
        let mut raw = RawInode::new_zeroed();
        let fields = fields_len(size, extra_isize);
        raw.as_mut_bytes()[..fields].copy_from_slice(&image[..fields]);
        if let Some(seed) = sb.checksum_seed() {
            verify_checksum(image, seed.inode(ino, raw.i_generation.get()), ino, extra_isize)?;
        }

        let inode = Self::from_raw(&raw, sb, extra_isize, image.into());
        let mode = inode.mode;
        if FileType::from_mode(mode).is_none() {
            return Err(error("i_mode", ino, format!("{mode:#o} has no file type")));
        }
        if inode.size > sb.block_unit().bytes_of(BlockRange::ALL).end {
            return Err(error(
                "i_size",
                ino,
                format!("{} passes the last block that a file can have", inode.size),
            ));
        }
        Ok(inode)
    }

    /// Returns a new inode: all zero but for the mode and `i_extra_isize`. `mode` includes the file
    /// type.
    #[must_use]
    pub fn new(mode: u16, sb: &Superblock) -> Self {
        let image = vec![0; sb.inode_size().into()].into_boxed_slice();
        let inode = Self::from_raw(&RawInode::new_zeroed(), sb, sb.want_extra_isize(), image);
        Self { mode, ..inode }
    }

    /// Writes all [`Superblock::inode_size`] bytes, with the checksum if the file system has
    /// `metadata_csum`.
    ///
    /// # Panics
    /// If `out` is shorter than [`Superblock::inode_size`], or the inode was made for another size.
    pub fn encode(&self, out: &mut [u8], sb: &Superblock, ino: InodeNo) {
        let out = &mut out[..usize::from(sb.inode_size())];
        out.copy_from_slice(&self.image);
        let fields = fields_len(out.len(), self.extra_isize);
        let mut raw = RawInode::new_zeroed();
        raw.as_mut_bytes()[..fields].copy_from_slice(&out[..fields]);
        self.to_raw(&mut raw, sb);
        out[..fields].copy_from_slice(&raw.as_bytes()[..fields]);
        if out.len() > BASE_SIZE {
            out[BASE_SIZE..BASE_SIZE + 2].copy_from_slice(&self.extra_isize.to_le_bytes());
        }
        if let Some(seed) = sb.checksum_seed() {
            seal(out, seed.inode(ino, self.generation), self.extra_isize);
        }
    }

    /// Returns the file type.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        // `parse` admits no other mode. If a caller has set another mode since, a regular file is
        // the least harmful answer.
        FileType::from_mode(self.mode).unwrap_or(FileType::Regular)
    }

    /// Returns true if this is a symbolic link whose target lies in [`Inode::block`].
    #[must_use]
    pub fn is_fast_symlink(&self) -> bool {
        let short = (1..length(self.block.len())).contains(&self.size);
        let elsewhere = self.flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA);
        self.file_type() == FileType::Symlink && short && !elsewhere
    }

    /// Returns the device number of a device file, as major and minor.
    #[must_use]
    pub fn rdev(&self) -> (u32, u32) {
        // The old encoding, of 16 bits, is in the first word. If that is 0, the new encoding is in
        // the second.
        match (self.block_word(0), self.block_word(4)) {
            (0, new) => (new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xf_ff00),
            (old, _) => (old >> 8 & 0xff, old & 0xff),
        }
    }

    /// Sets the device number of a device file. The format holds 12 bits of `major` and 20 of
    /// `minor`.
    pub fn set_rdev(&mut self, major: u32, minor: u32) {
        let (old, new) = if major < 256 && minor < 256 {
            (major << 8 | minor, 0)
        } else {
            (0, minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12)
        };
        self.block.fill(0);
        self.block[..4].copy_from_slice(&old.to_le_bytes());
        self.block[4..8].copy_from_slice(&new.to_le_bytes());
    }

    /// Returns the space for extended attributes after the fields; empty if the inode has none.
    #[must_use]
    pub fn xattr_area(&self) -> &[u8] {
        self.image.get(self.xattr_start()..).unwrap_or_default()
    }

    /// Returns the space for extended attributes for changes.
    pub fn xattr_area_mut(&mut self) -> &mut [u8] {
        let start = self.xattr_start();
        self.image.get_mut(start..).unwrap_or_default()
    }

    /// Returns the offset of the extended attributes. An inode without extra fields has none,
    /// because attributes would overlap `i_extra_isize`. Attributes that are there already are
    /// still found: the lower half of their magic number is 0, too.
    fn xattr_start(&self) -> usize {
        match self.image.get(BASE_SIZE..) {
            Some(area) if self.extra_isize == 0 && !xattr::is_ibody(area) => usize::MAX,
            _ => BASE_SIZE + usize::from(self.extra_isize),
        }
    }

    /// Extends the inode's extra fields to `want` bytes, filled with zeros, and moves its
    /// attributes after them. Returns false if there is no space for both
    /// (`ext4_try_to_expand_extra_isize`).
    pub fn expand_extra(&mut self, want: u16) -> bool {
        if self.extra_isize >= want {
            return true;
        }
        let start = BASE_SIZE + usize::from(want);
        let Some(room) = self.image.len().checked_sub(start) else { return false };
        let moved =
            xattr::parse_ibody(self.xattr_area()).ok().and_then(|list| xattr::encode_ibody(&list, room));
        let Some(moved) = moved else { return false };
        self.image[BASE_SIZE + usize::from(self.extra_isize)..start].fill(0);
        self.image[start..].copy_from_slice(&moved);
        self.extra_isize = want;
        true
    }

    fn block_word(&self, at: usize) -> u32 {
        self.block[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
    }

    fn from_raw(raw: &RawInode, sb: &Superblock, extra_isize: u16, image: Box<[u8]>) -> Self {
        Self {
            mode: raw.i_mode.get(),
            uid: join16(raw.i_uid.get(), raw.i_uid_high.get()),
            gid: join16(raw.i_gid.get(), raw.i_gid_high.get()),
            size: decode_size(raw, sb),
            atime: Timestamp::decode(raw.i_atime.get(), raw.i_atime_extra.get()),
            ctime: Timestamp::decode(raw.i_ctime.get(), raw.i_ctime_extra.get()),
            mtime: Timestamp::decode(raw.i_mtime.get(), raw.i_mtime_extra.get()),
            crtime: Timestamp::decode(raw.i_crtime.get(), raw.i_crtime_extra.get()),
            dtime: raw.i_dtime.get(),
            links: raw.i_links_count.get(),
            blocks: decode_blocks(raw, sb),
            flags: InodeFlags::from_bits_retain(raw.i_flags.get()),
            block: raw.i_block,
            generation: raw.i_generation.get(),
            file_acl: decode_file_acl(raw, sb),
            version: join32(raw.i_version.get(), raw.i_version_hi.get()),
            extra_isize,
            projid: raw.i_projid.get(),
            image,
        }
    }

    fn to_raw(&self, raw: &mut RawInode, sb: &Superblock) {
        raw.i_mode.set(self.mode);
        (raw.i_uid, raw.i_uid_high) = split16(self.uid);
        (raw.i_gid, raw.i_gid_high) = split16(self.gid);
        raw.i_dtime.set(self.dtime);
        raw.i_links_count.set(self.links);
        raw.i_block = self.block;
        raw.i_generation.set(self.generation);
        let (acl, acl_high) = split32(self.file_acl);
        raw.i_file_acl_lo = acl;
        // The Hurd stores `h_i_mode_high` in this field.
        if !sb.is_of_hurd() {
            raw.i_file_acl_high = split16(acl_high.get()).0;
        }
        (raw.i_version, raw.i_version_hi) = split32(self.version);
        raw.i_extra_isize.set(self.extra_isize);
        raw.i_projid.set(self.projid);
        self.encode_size(raw, sb);
        self.encode_blocks(raw, sb);
        self.encode_times(raw);
    }

    /// Writes the size.
    fn encode_size(&self, raw: &mut RawInode, sb: &Superblock) {
        if has_upper_size(self.file_type(), sb) {
            (raw.i_size_lo, raw.i_size_high) = split32(self.size);
        } else {
            raw.i_size_lo.set(u32::try_from(self.size).unwrap_or(u32::MAX));
        }
    }

    /// Writes the number of blocks in the first encoding that holds it, as the kernel does: 32
    /// bits, 48 bits, or 48 bits in units of file-system blocks. Without `huge_file` only 32 bits
    /// are available, and larger numbers are clamped.
    fn encode_blocks(&self, raw: &mut RawInode, sb: &Superblock) {
        let huge = sb.ro_compat().contains(RoCompat::HUGE_FILE);
        let in_fs_blocks = huge && self.blocks >> 48 != 0;
        let units = match (huge, in_fs_blocks) {
            (true, true) => (self.blocks >> (sb.block_bits() - 9)).min((1 << 48) - 1),
            (true, false) => self.blocks,
            (false, _) => self.blocks.min(u32::MAX.into()),
        };
        let (low, high) = split32(units);
        raw.i_blocks_lo = low;
        raw.i_blocks_high = split16(high.get()).0;
        let mut flags = self.flags;
        flags.set(InodeFlags::HUGE_FILE, in_fs_blocks);
        raw.i_flags.set(flags.bits());
    }

    fn encode_times(&self, raw: &mut RawInode) {
        // `encode` drops extra fields that do not fit the inode. The seconds are then clamped to 32
        // bits.
        let times = [
            (self.ctime, &mut raw.i_ctime, &mut raw.i_ctime_extra, 8),
            (self.mtime, &mut raw.i_mtime, &mut raw.i_mtime_extra, 12),
            (self.atime, &mut raw.i_atime, &mut raw.i_atime_extra, 16),
            (self.crtime, &mut raw.i_crtime, &mut raw.i_crtime_extra, 24),
        ];
        for (time, seconds, extra, needs_extra_isize) in times {
            let (low, high) = time.encode(self.extra_isize >= needs_extra_isize);
            seconds.set(low);
            extra.set(high);
        }
    }
}

fn error(field: &'static str, ino: InodeNo, problem: String) -> FormatError {
    FormatError::new("inode", field, problem).of_inode(ino)
}

/// Reads `i_extra_isize`; 0 in an inode of 128 bytes, which has no such field.
fn read_extra_isize(image: &[u8], ino: InodeNo) -> Result<u16> {
    let extra = image.get(BASE_SIZE..).unwrap_or_default();
    let Some(field) = extra.first_chunk() else { return Ok(0) };
    let extra_isize = u16::from_le_bytes(*field);
    if usize::from(extra_isize) > extra.len() || !extra_isize.is_multiple_of(4) {
        return Err(error(
            "i_extra_isize",
            ino,
            format!("{extra_isize}, but {} bytes are available", extra.len()),
        ));
    }
    Ok(extra_isize)
}

/// Returns the number of bytes of the inode that are known fields.
fn fields_len(inode_size: usize, extra_isize: u16) -> usize {
    FIELDS_SIZE.min(BASE_SIZE + usize::from(extra_isize)).min(inode_size)
}

/// Returns true if the size of an inode of this type has an upper half (`ext4_isize`). In other
/// inodes the field has other uses.
fn has_upper_size(file_type: FileType, sb: &Superblock) -> bool {
    file_type == FileType::Regular || sb.incompat().contains(Incompat::LARGEDIR)
}

fn decode_size(raw: &RawInode, sb: &Superblock) -> u64 {
    let wide = FileType::from_mode(raw.i_mode.get()).is_some_and(|file_type| has_upper_size(file_type, sb));
    join32(raw.i_size_lo.get(), if wide { raw.i_size_high.get() } else { 0 })
}

/// Reads the number of the block of attributes, whose upper half counts with `64bit` only.
fn decode_file_acl(raw: &RawInode, sb: &Superblock) -> u64 {
    let high = if sb.incompat().contains(Incompat::BIT64) { raw.i_file_acl_high.get() } else { 0 };
    join32(raw.i_file_acl_lo.get(), high.into())
}

fn decode_blocks(raw: &RawInode, sb: &Superblock) -> u64 {
    let low = raw.i_blocks_lo.get();
    if !sb.ro_compat().contains(RoCompat::HUGE_FILE) {
        return low.into();
    }
    let units = join32(low, raw.i_blocks_high.get().into());
    let in_fs_blocks = InodeFlags::from_bits_retain(raw.i_flags.get()).contains(InodeFlags::HUGE_FILE);
    if in_fs_blocks { units << (sb.block_bits() - 9) } else { units }
}

/// Returns the checksum of an inode's bytes, with zeros in place of the stored checksum. The stored
/// checksum has an upper half only if `i_extra_isize` covers it.
fn checksum(bytes: &[u8], seed: ChecksumSeed, extra_isize: u16) -> u32 {
    let (base, extra) = bytes.split_at(BASE_SIZE);
    let seed = seed.then(&base[..CHECKSUM_LO]).then(&[0; 2]).then(&base[CHECKSUM_LO + 2..]);
    if extra_isize < EXTRA_WITH_CHECKSUM_HI {
        return seed.of(extra);
    }
    let at = CHECKSUM_HI - BASE_SIZE;
    seed.then(&extra[..at]).then(&[0; 2]).of(&extra[at + 2..])
}

fn verify_checksum(image: &[u8], seed: ChecksumSeed, ino: InodeNo, extra_isize: u16) -> Result<()> {
    let half = |at: usize| u16::from_le_bytes([image[at], image[at + 1]]);
    let wide = extra_isize >= EXTRA_WITH_CHECKSUM_HI;
    let stored = join16(half(CHECKSUM_LO), if wide { half(CHECKSUM_HI) } else { 0 });
    let computed = checksum(image, seed, extra_isize) & if wide { u32::MAX } else { 0xffff };
    if stored == computed {
        return Ok(());
    }
    Err(error("checksum", ino, format!("stored {stored:#010x}, computed {computed:#010x}")))
}

fn seal(bytes: &mut [u8], seed: ChecksumSeed, extra_isize: u16) {
    let [a, b, c, d] = checksum(bytes, seed, extra_isize).to_le_bytes();
    bytes[CHECKSUM_LO..CHECKSUM_LO + 2].copy_from_slice(&[a, b]);
    if extra_isize >= EXTRA_WITH_CHECKSUM_HI {
        bytes[CHECKSUM_HI..CHECKSUM_HI + 2].copy_from_slice(&[c, d]);
    }
}

fn join16(low: u16, high: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

fn join32(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn split16(n: u32) -> (U16, U16) {
    (U16::new(low_16(n)), U16::new(low_16(n >> 16)))
}

fn split32(n: u64) -> (U32, U32) {
    (U32::new(low_32(n)), U32::new(low_32(n >> 32)))
}
