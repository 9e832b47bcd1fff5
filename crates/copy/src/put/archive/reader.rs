//! Reads the members of a tar archive one after the other.
//!
//! Headers are parsed by the `tar` crate. Its iterator is not used, because it splits records at
//! line ends, which values of attributes may contain, and does not return the maps of sparse files.

use std::io::{self, Read};

use crate::error::{Context, Result, bail, ensure};
use tar::{EntryType, GnuExtSparseHeader, Header};

use super::pax::{Global, Records, Sparse};

/// Bytes of a block, and of a header.
const BLOCK: usize = 512;
/// The largest number of bytes of a name, or of all records of a header.
const MOST: u64 = 8 << 20;

/// A member of the archive. [`Reader`] returns its data.
pub struct Member {
    pub header: Header,
    pub name: Vec<u8>,
    /// The target of a link.
    pub target: Option<Vec<u8>>,
    pub records: Records,
    /// Bytes of its data in the archive.
    pub size: u64,
}

/// An archive that is being read.
pub struct Reader<R> {
    input: R,
    /// Bytes of the member that were not read yet, and of the padding after them.
    left: u64,
    padding: u64,
    global: Global,
    /// True once a header was read.
    has_begun: bool,
    has_end: bool,
}

impl<R: Read> Reader<R> {
    pub fn new(input: R) -> Self {
        Self { input, left: 0, padding: 0, global: Global::default(), has_begun: false, has_end: false }
    }

    /// Returns true if the archive had an end mark: two blocks of zeros, or one at the end of the
    /// file. Without one, its last members may be missing.
    pub fn has_end(&self) -> bool {
        self.has_end
    }

    /// Returns the next member, after the rest of the one before. `None` at the end of the archive.
    pub fn next(&mut self) -> Result<Option<Member>> {
        let (mut name, mut target, mut records) = (None, None, Vec::new());
        let mut is_described = false;
        loop {
            let Some(header) = self.header()? else {
                ensure!(!is_described, "the archive ends within a header");
                return Ok(None);
            };
            let kind = header.entry_type();
            is_described |=
                matches!(kind, EntryType::XHeader | EntryType::GNULongName | EntryType::GNULongLink);
            // A hard link may state the size of its file, and has no data.
            self.begin(if kind == EntryType::Link { 0 } else { size(&header)? })?;
            match kind {
                EntryType::XHeader => records = self.extension()?,
                EntryType::GNULongName => name = Some(without_zeros(self.extension()?)),
                EntryType::GNULongLink => target = Some(without_zeros(self.extension()?)),
                EntryType::XGlobalHeader => {
                    let records = self.extension()?;
                    self.global.add(&records)?;
                }
                _ => {
                    let mut records = self.global.parse(&records)?;
                    if kind == EntryType::GNUSparse {
                        records.sparse = Some(self.sparse(&header)?);
                    }
                    if let Some(size) = records.size.filter(|_| kind != EntryType::Link) {
                        self.begin(size)?;
                    }
                    let name =
                        records.path.take().or(name).unwrap_or_else(|| header.path_bytes().into_owned());
                    let own = || header.link_name_bytes().map(std::borrow::Cow::into_owned);
                    let target = records.linkpath.take().or(target).or_else(own);
                    return Ok(Some(Member { name, target, records, size: self.left, header }));
                }
            }
        }
    }

    /// Reads the next header. An archive ends with a block of zeros, or where its file ends.
    fn header(&mut self) -> Result<Option<Header>> {
        let rest = self.left + self.padding;
        let skipped = io::copy(&mut (&mut self.input).take(rest), &mut io::sink())?;
        ensure!(skipped == rest, "the archive ends within a file");
        let mut header = Header::new_old();
        let len = self.block(header.as_mut_bytes())?;
        if len == 0 {
            ensure!(self.has_begun, "not a tar archive: it is empty");
            return Ok(None);
        }
        if len == BLOCK && is_zero(header.as_bytes()) {
            // A damaged archive may have a block of zeros before other members.
            let mut second = [0; BLOCK];
            self.block(&mut second)?;
            self.has_end = is_zero(&second);
            return Ok(None);
        }
        if len == BLOCK && has_checksum(&header) {
            self.has_begun = true;
            return Ok(Some(header));
        }
        if !self.has_begun
            && let Some(program) = compression(header.as_bytes())
        {
            bail!(
                "a {program} stream; decompress it first: {program} -dc FILE | parext4 put --tar - IMAGE:/DIR"
            );
        }
        ensure!(len == BLOCK, "the archive ends within a header");
        bail!("not a tar archive, or a damaged one")
    }

    /// Reads a block, or what precedes the end of the file. Returns the number of bytes.
    fn block(&mut self, block: &mut [u8; BLOCK]) -> Result<usize> {
        let mut len = 0;
        while len < BLOCK {
            match self.input.read(&mut block[len..])? {
                0 => break,
                count => len += count,
            }
        }
        Ok(len)
    }

    fn begin(&mut self, size: u64) -> Result<()> {
        let whole = size.checked_next_multiple_of(BLOCK as u64).context("a size out of range")?;
        (self.left, self.padding) = (size, whole - size);
        Ok(())
    }

    /// Reads all data of a member that describes the next one.
    fn extension(&mut self) -> Result<Vec<u8>> {
        ensure!(self.left <= MOST, "a name or records of {} bytes", self.left);
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        ensure!(self.left == 0, "the archive ends within a header");
        Ok(bytes)
    }

    /// Reads the map of a sparse file in the old format of GNU tar, which is before its data.
    fn sparse(&mut self, header: &Header) -> Result<Sparse> {
        let gnu = header.as_gnu().context("a sparse member has no GNU header")?;
        let mut sparse = Sparse::new(gnu.real_size()?);
        let mut add = |runs: &[tar::GnuSparseHeader]| -> Result<()> {
            for run in runs.iter().filter(|run| !run.is_empty()) {
                sparse.add(run.offset()?, run.length()?)?;
            }
            Ok(())
        };
        add(&gnu.sparse)?;
        let mut more = gnu.is_extended();
        while more {
            let mut next = GnuExtSparseHeader::new();
            self.input.read_exact(next.as_mut_bytes()).context("the archive ends within a header")?;
            add(&next.sparse)?;
            more = next.is_extended();
        }
        Ok(sparse)
    }
}

/// Reads the data of the member.
impl<R: Read> Read for Reader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = (&mut self.input).take(self.left).read(out)?;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Returns the size field of a header. A field that contains only zero bytes counts as 0, because
/// some programs leave it empty.
fn size(header: &Header) -> io::Result<u64> {
    if header.as_old().size == [0; 12] { Ok(0) } else { header.entry_size() }
}

/// Returns the name of the compression program with whose magic number `bytes` begins.
fn compression(bytes: &[u8]) -> Option<&'static str> {
    const MAGICS: [(&[u8], &str); 6] = [
        (b"\x1f\x8b", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh", "bzip2"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"LZIP", "lzip"),
    ];
    MAGICS.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, program)| *program)
}

/// Returns true if the checksum of a header is right.
fn has_checksum(header: &Header) -> bool {
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    let (all, field) = (sum(header.as_bytes()), sum(&header.as_bytes()[148..156]));
    // The field itself counts as eight spaces.
    header.cksum().ok() == Some(all - field + 8 * 32)
}

fn is_zero(block: &[u8; BLOCK]) -> bool {
    block.iter().all(|&byte| byte == 0)
}

fn without_zeros(mut name: Vec<u8>) -> Vec<u8> {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    name.truncate(end);
    name
}
