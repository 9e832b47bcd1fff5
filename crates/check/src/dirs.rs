//! The pass over all directories, as pass 2 of e2fsck: blocks, entries, index trees, and the inodes
//! that entries name.

use std::hash::RandomState;
use std::sync::atomic::{AtomicU32, Ordering};

use parext4_format::features::Incompat;
use parext4_format::inode::{FileType, InodeFlags};
use parext4_format::{ChecksumSeed, FormatError, FsBlock, InodeNo, dir_entry};

use crate::entries::{Entry, Walk};
use crate::found::{Dir, DirRun, Found};
use crate::index::{Index, Role};
use crate::names::Names;
use crate::problem::{
    PR_1_COLLAPSE_DBLOCK, PR_2_1ST_NOT_DOT, PR_2_2ND_NOT_DOT_DOT, PR_2_BAD_ENCODED_NAME,
    PR_2_BAD_ENCRYPTED_NAME, PR_2_BAD_FILETYPE, PR_2_BAD_INO, PR_2_BAD_INODE_DOT, PR_2_BAD_NAME,
    PR_2_CLEAR_FILETYPE, PR_2_DIR_CORRUPTED, PR_2_DIRECTORY_HOLE, PR_2_DUP_DOT, PR_2_HTREE_MAX_HASH,
    PR_2_HTREE_MIN_HASH, PR_2_HTREE_NOTREF, PR_2_LEAF_NODE_MISSING_CSUM, PR_2_LEAF_NODE_ONLY_CSUM_INVALID,
    PR_2_LINK_DIR, PR_2_LINK_DOT, PR_2_LINK_ROOT, PR_2_READ_DIRBLOCK, PR_2_REPORT_DUP_DIRENT,
    PR_2_UNENCRYPTED_FILE, PR_2_UNUSED_INODE, Problem,
};
use crate::volume::Volume;
use crate::work::in_parallel;

/// The shortest name in an encrypted directory, in bytes (`EXT4_CRYPTO_BLOCK_SIZE`).
const SHORTEST_ENCRYPTED: usize = 16;

/// Bytes of a directory that are read at a time.
const PIECE: usize = 256 << 10;

/// The directories of the volume and their parents.
pub(crate) struct Tree {
    /// The inodes of the directories, sorted.
    inodes: Vec<InodeNo>,
    /// The directory that has the entry of each directory, 0 if none has.
    pub named_in: Vec<AtomicU32>,
    /// The inode of `..` of each directory, 0 if there is none.
    pub dotdot: Vec<AtomicU32>,
    /// Key of the hashes of names.
    hasher: RandomState,
}

impl Tree {
    fn new(found: &Found) -> Self {
        let inline = found.inline_dirs.iter().map(|(ino, _)| *ino);
        let mut inodes: Vec<InodeNo> = found.dirs.iter().map(|dir| dir.ino).chain(inline).collect();
        inodes.sort_unstable();
        let zeros = || std::iter::repeat_with(AtomicU32::default).take(inodes.len()).collect();
        Self { named_in: zeros(), dotdot: zeros(), inodes, hasher: RandomState::new() }
    }

    pub(crate) fn index_of(&self, ino: InodeNo) -> Option<usize> {
        self.inodes.binary_search(&ino).ok()
    }

    pub(crate) fn inodes(&self) -> &[InodeNo] {
        &self.inodes
    }
}

/// Checks all directories. Returns them with their parents.
pub(crate) fn check(volume: &Volume<'_>, threads: usize, found: &mut Found) -> Tree {
    let tree = Tree::new(found);
    let runs = std::mem::take(&mut found.runs);
    let mut dirs = std::mem::take(&mut found.dirs);
    // Sorts by location on the device, so that neighbouring requests are near each other.
    dirs.sort_by_key(|dir| runs.get(dir.first_run).map_or(u64::MAX, |run| run.physical));
    let piece = PIECE / volume.block_size;
    in_parallel(
        threads,
        dirs.len(),
        || volume.buffer(piece),
        |buf, index| {
            let dir = &dirs[index];
            let runs = &runs[dir.first_run..dir.first_run + dir.runs as usize];
            Check::new(volume, &tree, dir.ino, dir.generation, dir.flags).blocks(dir, runs, buf);
        },
    );
    for (ino, bytes) in &found.inline_dirs {
        Check::new(volume, &tree, *ino, 0, InodeFlags::empty()).inline(bytes);
    }
    tree
}

struct Check<'a, 'v> {
    volume: &'a Volume<'v>,
    tree: &'a Tree,
    dir: InodeNo,
    seed: Option<ChecksumSeed>,
    flags: InodeFlags,
    names: Names<'a>,
}

impl<'a, 'v> Check<'a, 'v> {
    fn new(volume: &'a Volume<'v>, tree: &'a Tree, dir: InodeNo, generation: u32, flags: InodeFlags) -> Self {
        let seed = volume.seed.map(|seed| seed.inode(dir, generation));
        Self { volume, tree, dir, seed, flags, names: Names::new(&tree.hasher) }
    }

    fn fail(&self, error: FormatError, block: u64, problem: Problem) {
        let error = if block == 0 { error } else { error.in_block(FsBlock(block)) };
        self.volume.report(error.of_inode(self.dir), problem);
    }

    fn entry_fail(&self, field: &'static str, problem: impl std::fmt::Display, block: u64, e2fsck: Problem) {
        self.fail(FormatError::new("directory entry", field, problem), block, e2fsck);
    }

    /// Checks a directory with blocks.
    fn blocks(&mut self, dir: &Dir, runs: &[DirRun], buf: &mut [u8]) {
        if dir.is_whole
            && let Some(gap) = first_gap(runs, dir.blocks)
        {
            let error = FormatError::new("directory", "block", format_args!("block {gap} of it is missing"));
            self.fail(error, 0, PR_2_DIRECTORY_HOLE);
            let has_later = runs.last().is_some_and(|run| run.logical > gap);
            if has_later && self.flags.contains(InodeFlags::EXTENTS) {
                let problem = format_args!("block {gap} is missing, but later ones are not");
                self.fail(FormatError::new("directory", "ee_block", problem), 0, PR_1_COLLAPSE_DBLOCK);
            }
        }
        let is_index = self.flags.contains(InodeFlags::INDEX);
        let mut index =
            is_index.then(|| Index::read(self.volume, self.dir, self.seed, self.flags, runs, dir.blocks));
        let piece = buf.len() / self.volume.block_size;
        for run in runs {
            let mut done = 0;
            while done < run.len as usize {
                let here = piece.min(run.len as usize - done);
                let bytes = &mut buf[..here * self.volume.block_size];
                let (physical, logical) = (run.physical + done as u64, run.logical + done as u32);
                if self.volume.read(physical, bytes, "directory block", PR_2_READ_DIRBLOCK) {
                    for (at, block) in (0_u32..).zip(bytes.chunks_exact(self.volume.block_size)) {
                        self.block(block, physical + u64::from(at), logical + at, index.as_mut());
                    }
                }
                done += here;
            }
        }
    }

    fn block(&mut self, block: &[u8], physical: u64, logical: u32, index: Option<&mut Index>) {
        let role = index.as_ref().map_or(Role::Linear, |index| index.role(logical));
        let has_tail = self.seed.is_some();
        match role {
            Role::InodeRef => {
                if logical == 0 {
                    self.root(block, physical);
                }
                return;
            }
            Role::Unseen if logical > 0 => {
                let error =
                    FormatError::new("directory", "index", format_args!("block {logical} is not referenced"));
                self.fail(error, physical, PR_2_HTREE_NOTREF);
            }
            _ => {}
        }
        if let Some(seed) = self.seed
            && let Err(error) = dir_entry::verify_tail(seed, block)
        {
            let is_checksum = error.field == "checksum";
            let problem =
                if is_checksum { PR_2_LEAF_NODE_ONLY_CSUM_INVALID } else { PR_2_LEAF_NODE_MISSING_CSUM };
            self.fail(error, physical, problem);
        }
        let end = dir_entry::usable_len(block.len(), has_tail);
        for (position, entry) in Walk::new(&block[..end], block.len()).enumerate() {
            match entry {
                Err(error) => self.fail(error, physical, PR_2_DIR_CORRUPTED),
                Ok(entry) if logical == 0 && position < 2 => self.dot(position, &entry, physical),
                Ok(entry) => {
                    self.entry(&entry, physical);
                    if let (Role::Leaf { .. }, Some(index)) = (role, index.as_ref()) {
                        self.hash(&entry, physical, role, index);
                    }
                }
            }
        }
    }

    /// Checks `.` and `..` of an index root, which has no other entries.
    fn root(&mut self, block: &[u8], physical: u64) {
        for (position, entry) in Walk::new(block, block.len()).take(2).enumerate() {
            match entry {
                Ok(entry) => self.dot(position, &entry, physical),
                Err(error) => self.fail(error, physical, PR_2_DIR_CORRUPTED),
            }
        }
    }

    fn has_types(&self) -> bool {
        self.volume.has(Incompat::FILETYPE)
    }

    /// Checks one of the first two entries of a directory.
    fn dot(&mut self, position: usize, entry: &Entry<'_>, block: u64) {
        let (name, problem): (&[u8], _) =
            if position == 0 { (b".", PR_2_1ST_NOT_DOT) } else { (b"..", PR_2_2ND_NOT_DOT_DOT) };
        if entry.name != name || entry.ino.get() == 0 {
            self.entry_fail(
                "name",
                format_args!("entry {position} is not {:?}", printable(name)),
                block,
                problem,
            );
            return self.entry(entry, block);
        }
        if position == 0 && entry.ino != self.dir {
            self.entry_fail("inode", format_args!("\".\" is inode {}", entry.ino), block, PR_2_BAD_INODE_DOT);
        }
        self.file_type(entry, block, FileType::Directory.dirent_type());
        if position == 1 {
            return self.dotdot(entry.ino, block);
        }
        self.volume.count_name(entry.ino);
    }

    fn dotdot(&self, parent: InodeNo, block: u64) {
        if self.volume.inode(parent).is_none_or(|state| state.kind != FileType::Directory.dirent_type()) {
            self.entry_fail(
                "inode",
                format_args!("\"..\" is inode {parent}, which is not a directory"),
                block,
                PR_2_BAD_INO,
            );
        }
        if let Some(index) = self.tree.index_of(self.dir) {
            self.tree.dotdot[index].store(parent.get(), Ordering::Relaxed);
        }
        self.volume.count_name(parent);
    }

    fn entry(&mut self, entry: &Entry<'_>, block: u64) {
        if entry.ino.get() == 0 {
            return;
        }
        if let Some(problem) = self.problem_of_name(entry.name) {
            self.entry_fail("name", format_args!("{:?}", printable(entry.name)), block, problem);
        }
        if entry.name == b"." || entry.name == b".." {
            self.entry_fail(
                "name",
                format_args!("a second {:?}", printable(entry.name)),
                block,
                PR_2_DUP_DOT,
            );
        }
        if !self.names.add(entry.name) {
            let problem = format_args!("{:?} occurs twice", printable(entry.name));
            self.entry_fail("name", problem, block, PR_2_REPORT_DUP_DIRENT);
        }
        self.target(entry, block);
    }

    /// Returns the problem of a name that its directory cannot have.
    fn problem_of_name(&self, name: &[u8]) -> Option<Problem> {
        if self.flags.contains(InodeFlags::ENCRYPT) {
            return (name.len() < SHORTEST_ENCRYPTED).then_some(PR_2_BAD_ENCRYPTED_NAME);
        }
        if name.is_empty() || name.iter().any(|&byte| byte == 0 || byte == b'/') {
            return Some(PR_2_BAD_NAME);
        }
        let is_strict = self.volume.sb.encoding().is_some_and(|encoding| encoding.strict);
        let must_be_valid = is_strict && self.flags.contains(InodeFlags::CASEFOLD);
        (must_be_valid && str::from_utf8(name).is_err()).then_some(PR_2_BAD_ENCODED_NAME)
    }

    /// Checks the inode that an entry names.
    fn target(&self, entry: &Entry<'_>, block: u64) {
        let (ino, name) = (entry.ino, printable(entry.name));
        let fail = |text: &str, problem| {
            self.entry_fail("inode", format_args!("{name:?} is inode {ino}, {text}"), block, problem);
        };
        let is_reserved = ino.get() < self.volume.sb.first_inode() && ino != InodeNo::ROOT;
        if ino.get() > self.volume.sb.inodes_count() || is_reserved {
            return fail("which no file can be", PR_2_BAD_INO);
        }
        if ino == InodeNo::ROOT {
            return fail("the root", PR_2_LINK_ROOT);
        }
        if ino == self.dir {
            return fail("the directory itself", PR_2_LINK_DOT);
        }
        let Some(state) = self.volume.inode(ino) else {
            fail("which is not in use", PR_2_UNUSED_INODE);
            return self.unused_type(entry, block);
        };
        if state.links == 0 {
            fail("an orphan, which the next mount deletes", PR_2_UNUSED_INODE);
        } else if state.marks.is_hidden() {
            fail("which no directory may name", PR_2_BAD_INO);
        }
        if self.flags.contains(InodeFlags::ENCRYPT) && has_contents(state.kind) && !state.marks.is_encrypted()
        {
            fail("not encrypted, in an encrypted directory", PR_2_UNENCRYPTED_FILE);
        }
        state.names.fetch_add(1, Ordering::Relaxed);
        self.file_type(entry, block, state.kind);
        if state.kind == FileType::Directory.dirent_type()
            && let Some(index) = self.tree.index_of(ino)
        {
            let before = self.tree.named_in[index].swap(self.dir.get(), Ordering::Relaxed);
            if before != 0 {
                fail("a directory that another entry names, too", PR_2_LINK_DIR);
            }
        }
    }

    /// Compares the type of an entry with the mode that its unused inode has kept. It reads one
    /// block for each such entry, so it is not called after the limit of findings.
    fn unused_type(&self, entry: &Entry<'_>, block: u64) {
        if self.volume.findings.is_full() {
            return;
        }
        let bytes = self.volume.inode_bytes(entry.ino.get(), &mut self.volume.buffer(1));
        let mode = bytes.and_then(|bytes| bytes.first_chunk().map(|mode| u16::from_le_bytes(*mode)));
        let kind = mode.and_then(FileType::from_mode).map_or(0, FileType::dirent_type);
        self.file_type(entry, block, kind);
    }

    fn file_type(&self, entry: &Entry<'_>, block: u64, kind: u8) {
        let (found, name, ino) = (entry.file_type, printable(entry.name), entry.ino);
        // 0 stands for an unknown type, as in volumes that got the feature later. e2fsck sets it,
        // but accepts it, too.
        if found == 0 {
            return;
        }
        if !self.has_types() {
            let problem = format_args!("{found} of {name:?}, but the volume has no types");
            self.entry_fail("file_type", problem, block, PR_2_CLEAR_FILETYPE);
        } else if found != kind {
            let problem = format_args!("{found} of {name:?}, but inode {ino} has type {kind}");
            self.entry_fail("file_type", problem, block, PR_2_BAD_FILETYPE);
        }
    }

    fn hash(&self, entry: &Entry<'_>, block: u64, role: Role, index: &Index) {
        let (Role::Leaf { low, high }, Some(hash)) = (role, index.hash) else { return };
        if entry.ino.get() == 0 {
            return;
        }
        let (found, name) = (hash.hash(entry.name).0, printable(entry.name));
        // Bit 0 of a bound says that names of this hash begin in the previous block.
        if found < low & !1 {
            let problem = format_args!("{name:?} hashes to {found:#x}, below {low:#x}");
            self.entry_fail("hash", problem, block, PR_2_HTREE_MIN_HASH);
        } else if high.is_some_and(|high| found >= high) {
            let high = high.unwrap_or_default();
            let problem = format_args!("{name:?} hashes to {found:#x}, not below {high:#x}");
            self.entry_fail("hash", problem, block, PR_2_HTREE_MAX_HASH);
        }
    }

    /// Checks a directory in its inode: the inode of `..`, and entries in two parts.
    fn inline(&mut self, bytes: &[u8]) {
        /// Bytes of `i_block`.
        const FIRST: usize = 60;
        let Some((dotdot, rest)) = bytes.split_first_chunk() else { return };
        self.volume.count_name(self.dir);
        self.dotdot(InodeNo(u32::from_le_bytes(*dotdot)), 0);
        let (first, second) = rest.split_at(rest.len().min(FIRST - dotdot.len()));
        for part in [first, second].into_iter().filter(|part| !part.is_empty()) {
            for entry in Walk::new(part, self.volume.block_size) {
                match entry {
                    Ok(entry) => self.entry(&entry, 0),
                    Err(error) => self.fail(error, 0, PR_2_DIR_CORRUPTED),
                }
            }
        }
    }
}

/// Returns true for the types of files whose contents encryption concerns.
fn has_contents(kind: u8) -> bool {
    [FileType::Regular, FileType::Directory, FileType::Symlink].iter().any(|of| of.dirent_type() == kind)
}

fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Returns the first block below `blocks` that no run has. Runs are in the order of their blocks.
fn first_gap(runs: &[DirRun], blocks: u32) -> Option<u32> {
    let mut next = 0;
    for run in runs {
        if run.logical > next {
            return Some(next);
        }
        next = run.logical.saturating_add(run.len);
    }
    (next < blocks).then_some(next)
}
