//! Checks one inode: fields, attributes, and the map of its blocks, which it claims.

use std::cell::Cell;

use parext4_format::features::{Compat, Incompat, RoCompat};
use parext4_format::inode::{FileType, Inode, InodeFlags};
use parext4_format::{BlockRange, FormatError, FsBlock, InodeNo, xattr};

use crate::flags;
use crate::found::{Dir, Found, InBlock};
use crate::map;
use crate::mapper::Mapper;
use crate::problem::{
    PR_1_BAD_EA_BLOCK, PR_1_BAD_I_BLOCKS, PR_1_BAD_I_SIZE, PR_1_CORRUPT_ENCRYPTION_XATTR,
    PR_1_EA_BLOCK_ONLY_CSUM_INVALID, PR_1_EXTRA_ISIZE, PR_1_INLINE_DATA_NO_ATTR,
    PR_1_INODE_ONLY_CSUM_INVALID, PR_1_LOW_DTIME, PR_1_MISSING_ENCRYPTION_XATTR, PR_1_READ_EA_BLOCK,
    PR_1_RESERVED_BAD_MODE, PR_1_ROOT_NO_DIR, PR_1_SET_DTIME, PR_1_ZERO_DTIME, PR_2_BAD_MODE,
    PR_2_BLOCKS_HI_ZERO, PR_2_FADDR_ZERO, PR_2_FILE_ACL_BAD, PR_2_FILE_ACL_ZERO, PR_2_I_FILE_ACL_HI_ZERO,
    PR_2_INVALID_SYMLINK, Problem,
};
use crate::reserved;
use crate::scan;
use crate::special;
use crate::symlinks;
use crate::usage::Used;
use crate::verity;
use crate::volume::{InodeState, Marks, Volume};
use crate::xattrs::{self, Attributes, Entry, Policy};

/// Returns true if the blocks of the inode are in a map.
pub(crate) fn has_map(inode: &Inode) -> bool {
    let of_type = matches!(inode.file_type(), FileType::Regular | FileType::Directory | FileType::Symlink);
    of_type && !inode.flags.contains(InodeFlags::INLINE_DATA) && !inode.is_fast_symlink()
}

/// Checks an inode that is not all zeros.
pub(crate) fn check(volume: &Volume<'_>, found: &mut Found, ino: InodeNo, bytes: &[u8]) -> InodeState {
    reserved::check(volume, ino, bytes);
    if ino.get() == 1 {
        if let Some(inode) = scan::parse(volume, ino, bytes) {
            let (has_type, knows_size, is_bad) = (true, true, Cell::new(false));
            Check { volume, ino, inode: &inode, has_type, knows_size, is_bad }.map(found, 0);
        }
        return InodeState::default();
    }
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
    let (links, is_orphan) = (half(26), volume.orphans.contains(&ino.get()));
    if links == 0 && !is_orphan {
        let parsed = Inode::parse(bytes, &volume.sb, ino);
        // The checksum covers an unused inode, too. An unused inode without room for the checksum
        // is wrong, too.
        if let Err(error) = parsed
            && (error.field == "checksum" || (error.field == "i_extra_isize" && volume.seed.is_some()))
        {
            volume.report(error, PR_1_INODE_ONLY_CSUM_INVALID);
        }
        let fail = |problem: String, e2fsck| {
            volume.report(FormatError::new("inode", "i_dtime", problem).of_inode(ino), e2fsck);
        };
        match word(20) {
            0 if half(0) != 0 => fail("0 in an inode without links".to_owned(), PR_1_ZERO_DTIME),
            dtime if volume.may_be_orphan(dtime) => {
                fail(format!("{dtime}, an inode, but no list of orphans has this one"), PR_1_LOW_DTIME);
                found.refugees += 1;
            }
            _ => {}
        }
        return InodeState::default();
    }
    let is_encrypted = word(32) & InodeFlags::ENCRYPT.bits() != 0;
    let state =
        |kind, hidden| InodeState { names: 0.into(), links, kind, marks: Marks::new(hidden, is_encrypted) };
    let file_type = FileType::from_mode(half(0));
    let Some(parsed) = parse(volume, ino, bytes) else {
        // The inode counts as in use, so that its names are not reported as well.
        return state(file_type.map_or(UNKNOWN_TYPE, FileType::dirent_type), false);
    };
    if links > 0 && !is_orphan && volume.may_be_orphan(word(20)) {
        found.refugees += 1;
    }
    let inode = &parsed.inode;
    let has_type = file_type.is_some();
    let check =
        Check { volume, ino, inode, has_type, knows_size: parsed.knows_size, is_bad: Cell::new(false) };
    check.all(found, bytes);
    let kind = match file_type {
        Some(kind @ (FileType::Regular | FileType::Directory)) => kind.dirent_type(),
        Some(kind) if !check.is_bad.get() => kind.dirent_type(),
        _ => UNKNOWN_TYPE,
    };
    let is_value = inode.flags.contains(InodeFlags::EA_INODE) && volume.has(Incompat::EA_INODE);
    state(kind, (links == 0 && is_orphan) || is_value || volume.is_hidden(ino.get()))
}

/// Stands for the type of an inode whose mode has none, and of a special file or a symbolic link
/// that e2fsck would delete: no type in a directory entry is right for it.
const UNKNOWN_TYPE: u8 = 8;

/// An inode that was parsed in spite of errors.
struct Parsed {
    inode: Inode,
    /// False if the size was wrong. It was reported, and is limited to the largest one.
    knows_size: bool,
}

/// Parses an inode in use, and reports what is wrong with it. If the mode has no type, the inode
/// counts as a file without blocks. A size that no file can have counts as the largest one.
fn parse(volume: &Volume<'_>, ino: InodeNo, bytes: &[u8]) -> Option<Parsed> {
    const FIFO: u16 = 0o010_000;
    let mut error = match Inode::parse(bytes, &volume.sb, ino) {
        Ok(inode) => return Some(Parsed { inode, knows_size: true }),
        Err(error) => error,
    };
    let (mut bytes, mut knows_size) = (bytes.to_vec(), true);
    let mut reported = Vec::new();
    loop {
        let field = error.field;
        if reported.contains(&field) {
            return None;
        }
        reported.push(field);
        volume.report(error, problem_of(field));
        match field {
            "i_mode" => {
                let mode = u16::from_le_bytes([bytes[0], bytes[1]]) & 0o7777 | FIFO;
                bytes[..2].copy_from_slice(&mode.to_le_bytes());
            }
            "i_size" => {
                let size = volume.sb.block_unit().bytes_of(BlockRange::ALL).end.to_le_bytes();
                bytes[4..8].copy_from_slice(&size[..4]);
                bytes[108..112].copy_from_slice(&size[4..]);
                knows_size = false;
            }
            _ => {}
        }
        error = match Inode::parse(&bytes, &volume.lenient, ino) {
            Ok(inode) => return Some(Parsed { inode, knows_size }),
            Err(error) => error,
        };
    }
}

fn problem_of(field: &str) -> Problem {
    match field {
        "i_mode" => PR_2_BAD_MODE,
        "i_size" => PR_1_BAD_I_SIZE,
        "i_extra_isize" => PR_1_EXTRA_ISIZE,
        _ => PR_1_INODE_ONLY_CSUM_INVALID,
    }
}

struct Check<'a, 'v> {
    volume: &'a Volume<'v>,
    ino: InodeNo,
    inode: &'a Inode,
    /// False if the mode has no type.
    has_type: bool,
    /// False if the size was wrong. It was reported.
    knows_size: bool,
    /// True after a problem of pass 2 of e2fsck, which checks inodes that pass 1 has found bad.
    is_bad: Cell<bool>,
}

impl Check<'_, '_> {
    fn fail(&self, field: &'static str, problem: impl std::fmt::Display, e2fsck: Problem) {
        const PASS_2: u32 = 2;
        if e2fsck == PR_1_BAD_I_SIZE && !self.knows_size {
            // This was reported before.
            return;
        }
        self.is_bad.set(self.is_bad.get() || e2fsck.code >> 16 == PASS_2);
        self.volume.report(FormatError::new("inode", field, problem).of_inode(self.ino), e2fsck);
    }

    fn all(&self, found: &mut Found, bytes: &[u8]) {
        self.fields(bytes);
        if self.has_type {
            flags::check(self.volume, self.ino, self.inode, &|error, problem| {
                self.volume.report(error.of_inode(self.ino), problem);
            });
        }
        let (rest, own) = self.attributes(found);
        let blocks = if self.inode.flags.contains(InodeFlags::INLINE_DATA) {
            self.inline(found, rest);
            self.blocks(own.blocks);
            Some(own.blocks)
        } else {
            self.map(found, own.blocks)
        };
        self.usage(found, blocks, own.inodes);
    }

    /// Counts the inode for its user, group and project, with `values` that have inodes of their
    /// own. If `blocks` is `None`, `i_blocks` counts.
    fn usage(&self, found: &mut Found, blocks: Option<u64>, values: u64) {
        let is_counted =
            self.volume.sb.is_counted(self.ino) && !self.inode.flags.contains(InodeFlags::EA_INODE);
        if let Some(usage) = self.volume.usage.as_ref().filter(|_| is_counted) {
            let blocks = blocks.unwrap_or(self.inode.blocks / (self.volume.block_size as u64 / 512));
            usage.count(&mut found.counts, self.inode, Used { blocks, inodes: 1 + values });
        }
    }

    fn fields(&self, bytes: &[u8]) {
        let (inode, ino, sb) = (self.inode, self.ino, &self.volume.sb);
        let is_directory = inode.file_type() == FileType::Directory;
        if ino == InodeNo::ROOT && !is_directory {
            self.fail("i_mode", "the root is not a directory", PR_1_ROOT_NO_DIR);
        }
        if ino.get() < sb.first_inode() && ino != InodeNo::ROOT && inode.file_type() != FileType::Regular {
            self.fail(
                "i_mode",
                format_args!("{:#o} of a reserved inode", inode.mode),
                PR_1_RESERVED_BAD_MODE,
            );
        }
        if inode.dtime != 0 && inode.links > 0 && !self.volume.orphans.contains(&ino.get()) {
            let text = format!("{} in an inode with links", inode.dtime);
            if self.volume.may_be_orphan(inode.dtime) {
                self.fail("i_dtime", format_args!("{text}, as of an orphan"), PR_1_LOW_DTIME);
            }
            self.fail("i_dtime", text, PR_1_SET_DTIME);
        }
        if special::is_special(inode) && self.has_type {
            special::check(self.volume, ino, inode, bytes, &|field, text, problem| {
                self.fail(field, text, problem);
            });
        } else if inode.file_type() == FileType::Regular && !inode.flags.contains(InodeFlags::EXTENTS) {
            self.size_limit();
        }
        let zero = |range: std::ops::Range<usize>| bytes[range].iter().all(|&byte| byte == 0);
        if !zero(112..116) {
            self.fail("i_obso_faddr", "is not 0", PR_2_FADDR_ZERO);
        }
        if !zero(116..118) && sb.is_of_linux() && !sb.ro_compat().contains(RoCompat::HUGE_FILE) {
            self.fail("i_blocks_high", "is not 0 without huge_file", PR_2_BLOCKS_HI_ZERO);
        }
        if !zero(118..120) && !sb.is_of_hurd() && !self.volume.has(Incompat::BIT64) {
            self.fail("i_file_acl_high", "is not 0 without 64bit", PR_2_I_FILE_ACL_HI_ZERO);
        }
        if is_directory && !zero(108..112) && !self.volume.has(Incompat::LARGEDIR) {
            self.fail("i_size_high", "is not 0 in a directory without large_dir", PR_1_BAD_I_SIZE);
        }
    }

    /// Checks that a file without extents is no larger than its map can be.
    fn size_limit(&self) {
        let (size, block) = (self.inode.size, self.volume.block_size as u64);
        let pointers = block / 4;
        let most = (12 + pointers + pointers.pow(2) + pointers.pow(3)) * block;
        if size > most {
            let problem = format_args!("{size}, but a file without extents has at most {most} bytes");
            self.fail("i_size", problem, PR_1_BAD_I_SIZE);
        }
    }

    /// Checks the attributes, and counts the references to their block and to the inodes of their
    /// values. Returns the rest of inline data, and the usage by the attributes: their block, and
    /// the values in inodes. As in e2fsck, a block that does not exist is no usage.
    fn attributes(&self, found: &mut Found) -> (Option<&[u8]>, Used) {
        let checked = xattrs::in_inode(self.inode.xattr_area(), self.inode);
        let attributes = checked.unwrap_or_else(|(error, problem)| {
            self.volume.report(error.of_inode(self.ino), problem);
            Attributes { policy: Policy::Some, ..Attributes::default() }
        });
        let mut used = self.values(found, None, &attributes.in_inodes);
        let block = self.inode.file_acl;
        if block == 0 {
            self.encryption(attributes.policy);
            return (attributes.inline_data, used);
        }
        if !self.volume.sb.compat().contains(Compat::EXT_ATTR) {
            self.fail("i_file_acl", format_args!("{block} without the feature ext_attr"), PR_2_FILE_ACL_ZERO);
            if !self.volume.has_blocks(block, 1) {
                self.fail("i_file_acl", format_args!("{block} is out of range"), PR_2_FILE_ACL_BAD);
            }
            return (attributes.inline_data, used);
        }
        if !self.volume.has_blocks(block, 1) {
            self.fail("i_file_acl", format_args!("{block} is out of range"), PR_2_FILE_ACL_BAD);
            return (attributes.inline_data, used);
        }
        *found.attribute_blocks.entry(block).or_default() += 1;
        let cluster = self.volume.claims.cluster_of(block);
        let is_encrypted = self.inode.flags.contains(InodeFlags::ENCRYPT);
        let mut in_block = InBlock::default();
        if found.claim_attributes(cluster) {
            self.volume.claim_blocks(block, 1);
            in_block = self.attribute_block(found, block);
        } else if is_encrypted || self.volume.has(Incompat::EA_INODE) {
            let known = found.shared_blocks.get(&block).copied();
            in_block = known.unwrap_or_else(|| self.shared_block(found, block));
            found.shared_blocks.insert(block, in_block);
        }
        self.encryption(attributes.policy.or(in_block.policy));
        used.blocks += in_block.values.blocks + (1 << self.volume.sb.cluster_bits());
        used.inodes += in_block.values.inodes;
        (attributes.inline_data, used)
    }

    /// Checks that an encrypted inode has the attribute with its encryption policy. The deletion of
    /// an orphan may have removed it.
    fn encryption(&self, policy: Policy) {
        let is_reserved = self.ino.get() < self.volume.sb.first_inode() && self.ino != InodeNo::ROOT;
        if !self.inode.flags.contains(InodeFlags::ENCRYPT) || is_reserved || self.is_deleted() {
            return;
        }
        let (text, problem) = match policy {
            Policy::Some => return,
            Policy::Corrupt => ("encrypt with a policy that is not valid", PR_1_CORRUPT_ENCRYPTION_XATTR),
            Policy::None => ("encrypt without the attribute of the policy", PR_1_MISSING_ENCRYPTION_XATTR),
        };
        self.fail("i_flags", text, problem);
    }

    /// Checks an attribute block.
    fn attribute_block(&self, found: &mut Found, block: u64) -> InBlock {
        let mut buf = self.volume.buffer(1);
        if !self.volume.read(block, &mut buf, "xattr block", PR_1_READ_EA_BLOCK) {
            return InBlock::UNREADABLE;
        }
        let parsed = xattr::parse_block(&buf, FsBlock(block), self.volume.seed);
        if let Err(error) = parsed
            && error.field != "e_value_size"
        {
            let is_checksum = error.field == "checksum";
            let problem = if is_checksum { PR_1_EA_BLOCK_ONLY_CSUM_INVALID } else { PR_1_BAD_EA_BLOCK };
            self.volume.report(error.of_inode(self.ino), problem);
            return InBlock::UNREADABLE;
        }
        found.stored_refcounts.push((block, xattr::refcount(&buf)));
        match xattrs::in_block(&buf, self.inode) {
            Ok(attributes) => InBlock {
                values: self.values(found, Some(FsBlock(block)), &attributes.in_inodes),
                policy: attributes.policy,
            },
            Err((error, problem)) => {
                self.volume.report(error.of_inode(self.ino).in_block(FsBlock(block)), problem);
                InBlock::UNREADABLE
            }
        }
    }

    /// Checks the entries in the inode, or in `block`, whose values are in inodes. Returns the
    /// usage by the values.
    fn values(&self, found: &Found, block: Option<FsBlock>, entries: &[Entry<'_>]) -> Used {
        for entry in entries {
            if let Err((error, problems)) = found.values.refer(self.volume, self.ino, self.inode, entry) {
                let error = error.of_inode(self.ino);
                let error = block.map_or(error.clone(), |block| error.in_block(block));
                problems.iter().for_each(|&problem| self.volume.report(error.clone(), problem));
            }
        }
        found.values.charge(self.volume, self.ino, self.inode, entries)
    }

    /// Reads an attribute block that another inode has checked.
    fn shared_block(&self, found: &Found, block: u64) -> InBlock {
        let mut buf = self.volume.buffer(1);
        let is_read = self.volume.read(block, &mut buf, "xattr block", PR_1_READ_EA_BLOCK);
        let attributes = is_read.then(|| xattrs::in_block(&buf, self.inode).ok()).flatten();
        let Some(attributes) = attributes else { return InBlock::UNREADABLE };
        InBlock {
            values: found.values.charge(self.volume, self.ino, self.inode, &attributes.in_inodes),
            policy: attributes.policy,
        }
    }

    fn inline(&self, found: &mut Found, rest: Option<&[u8]>) {
        let inode = self.inode;
        if rest.is_none() {
            self.fail("i_flags", "inline data without the attribute system.data", PR_1_INLINE_DATA_NO_ATTR);
        }
        let rest = rest.unwrap_or_default();
        let room = (inode.block.len() + rest.len()) as u64;
        // A file may be longer than its data, and reads as zeros there: the kernel and mke2fs leave
        // it inline if only its size grows.
        if inode.size > room && inode.file_type() != FileType::Regular {
            self.fail(
                "i_size",
                format_args!("{} with {room} bytes of inline data", inode.size),
                PR_1_BAD_I_SIZE,
            );
        }
        if inode.file_type() == FileType::Directory && !self.is_deleted() {
            found.inline_dirs.push((self.ino, [&inode.block[..], rest].concat().into()));
        }
    }

    /// Checks `i_blocks` against the number of blocks found.
    fn blocks(&self, blocks: u64) {
        if self.is_deleted() && self.volume.has(Incompat::EA_INODE) {
            // The deletion of an orphan releases all values before it counts them.
            return;
        }
        let sectors = blocks * (self.volume.block_size as u64 / 512);
        if sectors != self.inode.blocks {
            self.fail(
                "i_blocks",
                format_args!("{}, but {sectors} are in use", self.inode.blocks),
                PR_1_BAD_I_BLOCKS,
            );
        }
    }

    /// Walks the map, and compares it with the sizes. `own_blocks` counts blocks that are not in
    /// the map. Returns the number of blocks that the inode uses, if it is known.
    fn map(&self, found: &mut Found, own_blocks: u64) -> Option<u64> {
        let (inode, volume) = (self.inode, self.volume);
        if self.ino == InodeNo::RESIZE {
            crate::resize::check(volume, inode);
            return None;
        }
        if !has_map(inode) {
            self.blocks(own_blocks);
            if inode.is_fast_symlink() {
                self.symlink();
            }
            return Some(own_blocks);
        }
        let is_directory = inode.file_type() == FileType::Directory && !self.is_deleted();
        let first_run = found.runs.len();
        let mut mapper = Mapper::new(volume, self.ino, is_directory.then_some(&mut found.runs));
        map::walk(volume, self.ino, inode, &mut mapper);
        let mapped = mapper.finish();
        if self.ino.get() == volume.sb.journal_inode() {
            found.journal = mapped.first_block.map(|block| (block, mapped.data_blocks));
        }
        let blocks = mapped.is_counted.then_some(mapped.blocks + own_blocks);
        if let Some(blocks) = blocks.filter(|_| self.ino.get() != 1) {
            self.blocks(blocks);
        }
        match inode.file_type() {
            _ if self.is_deleted() => {}
            FileType::Directory => {
                let runs = first_run..found.runs.len();
                self.directory_size(mapped.end, mapped.is_counted);
                let dir = Dir::new(self.ino, inode, mapped.end, runs);
                found.dirs.push(Dir { is_whole: !mapped.shares_data, ..dir });
            }
            FileType::Symlink => self.symlink(),
            _ if mapped.is_counted => {
                self.file_size(mapped.last_written);
                if mapped.is_complete && inode.flags.contains(InodeFlags::VERITY) {
                    verity::check(volume, self.ino, inode);
                }
            }
            _ => {}
        }
        blocks
    }

    /// Returns true for an orphan without names. Its deletion may have freed a part of it, and its
    /// own entries do not count.
    fn is_deleted(&self) -> bool {
        self.inode.links == 0
    }

    /// Checks that the size of a directory covers its blocks, apart from blocks that old kernels
    /// preallocated.
    fn directory_size(&self, end: u64, is_known: bool) {
        let (size, block) = (self.inode.size, self.volume.block_size as u64);
        let preallocated = u64::from(self.volume.sb.raw().s_prealloc_dir_blocks);
        let is_possible = (end.saturating_sub(preallocated)..=end).contains(&(size / block));
        if !size.is_multiple_of(block) || (is_known && !is_possible) {
            let problem = format_args!("{size}, but the directory has {end} blocks");
            self.fail("i_size", problem, PR_1_BAD_I_SIZE);
        }
    }

    /// Checks that the size covers the last written block, except for up to one page of blocks,
    /// which e2fsck tolerates. Only verity keeps blocks past the size.
    fn file_size(&self, last_written: Option<u64>) {
        let (size, block) = (self.inode.size, self.volume.block_size as u64);
        let Some(last) = last_written.filter(|_| !self.inode.flags.contains(InodeFlags::VERITY)) else {
            return;
        };
        let per_page = (4096 / block).max(1);
        let ends_page = (last + 1).is_multiple_of(per_page);
        let page_start = last / per_page * per_page * block;
        if size < last * block && (!ends_page || size < page_start) {
            self.fail("i_size", format_args!("{size}, but file block {last} is written"), PR_1_BAD_I_SIZE);
        }
    }

    fn symlink(&self) {
        if let Some(problem) = symlinks::problem(self.volume, self.inode) {
            self.fail("i_size", problem, PR_2_INVALID_SYMLINK);
        }
    }
}
