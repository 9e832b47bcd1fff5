//! Records of the PAX format: names, times, owners, attributes, access control lists, flags, and
//! the maps of sparse files.
//!
//! The key of an unknown record goes to [`Records::ignored`], unless [`WITHOUT_EFFECT`] lists it. A
//! member with a malformed record of a known kind is refused ([`Records::malformed`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::num::ParseIntError;
use std::str::FromStr;

use crate::error::{Context, Error, Result, ensure};
use parext4::{InodeFlags, Timestamp};

use super::{base64, flags};
use crate::access_list::{ACCESS, DEFAULT};
use crate::transfer::MOST_RUNS;

/// Bytes of a block of an archive.
const BLOCK: u64 = 512;
/// Prefix of the keys under which GNU tar, bsdtar and star store extended attributes.
const XATTR: &[u8] = b"SCHILY.xattr.";
/// libarchive (bsdtar) writes each attribute under this name, too, with a value in base64.
const LIBARCHIVE_XATTR: &[u8] = b"LIBARCHIVE.xattr.";
/// Keys of records without effect on a copy: names of owners, whose numbers count; numbers of the
/// file where it was; times that no program can set; and the way in which the archive stores the
/// rest.
const WITHOUT_EFFECT: [&[u8]; 15] = [
    b"comment",
    b"charset",
    b"hdrcharset",
    b"uname",
    b"gname",
    b"ctime",
    b"LIBARCHIVE.creationtime",
    b"LIBARCHIVE.symlinktype",
    b"SCHILY.dev",
    b"SCHILY.ino",
    b"SCHILY.nlink",
    b"SCHILY.filetype",
    b"GNU.sparse.minor",
    b"GNU.sparse.numblocks",
    b"GNU.volume.label",
];
/// Bytes of a key or a value that a message has at most.
const SHOWN: usize = 255;

/// The records of one file.
#[derive(Debug, Default)]
pub struct Records {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mtime: Option<Timestamp>,
    pub atime: Option<Timestamp>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Access control lists as text, by the names of their attributes.
    pub lists: BTreeMap<&'static [u8], Vec<u8>>,
    pub flags: InodeFlags,
    pub path: Option<Vec<u8>>,
    pub linkpath: Option<Vec<u8>>,
    /// Bytes of data in the archive.
    pub size: Option<u64>,
    /// The name of a sparse file; the header has one that other programs unpack it by.
    pub name: Option<Vec<u8>>,
    pub sparse: Option<Sparse>,
    /// Records that were not understood and that matter.
    pub ignored: Vec<String>,
    /// The error of a malformed record, because of which the member is not unpacked.
    pub malformed: Option<Error>,
    /// Attributes by their names, as libarchive encodes them, and their values.
    of_libarchive: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A sparse file, in one of GNU tar's PAX formats.
#[derive(Debug, Default)]
pub struct Sparse {
    /// The size with its holes.
    pub size: u64,
    /// Offsets and lengths of the data, in formats 0.0 and 0.1. In format 1.0 they precede the
    /// data.
    runs: Vec<(u64, u64)>,
    is_before_data: bool,
}

/// The records of global headers: owners and times of all members that follow, unless they have
/// records of their own.
#[derive(Debug, Default)]
pub struct Global {
    uid: Option<u32>,
    gid: Option<u32>,
    mtime: Option<Timestamp>,
    atime: Option<Timestamp>,
    /// The key of a record that is left out, until a member takes it for its warnings.
    ignored: Option<String>,
}

impl Global {
    /// Adds the records of a global header. Later records override earlier ones.
    pub fn add(&mut self, bytes: &[u8]) -> Result<()> {
        let (mut records, mut ignored) = (self.defaults(), None);
        for_each(bytes, |key, value| {
            match key {
                b"uid" | b"gid" | b"mtime" | b"atime" => records.record(key, value)?,
                _ if WITHOUT_EFFECT.contains(&key) => {}
                _ => _ = ignored.get_or_insert_with(|| format!("{} of a global header", shown(key))),
            }
            Ok(())
        })?;
        let Records { uid, gid, mtime, atime, .. } = records;
        *self = Self { uid, gid, mtime, atime, ignored: self.ignored.take().or(ignored) };
        Ok(())
    }

    /// Parses the records of a member.
    ///
    /// # Errors
    /// The size of the data in the archive is malformed, or a record without an end may hide it, so
    /// that the next member cannot be found.
    pub fn parse(&mut self, own: &[u8]) -> Result<Records> {
        let mut records = self.defaults();
        records.ignored.extend(self.ignored.take());
        let mut malformed = None;
        // Records after a malformed one count: the size may be among them.
        for_each(own, |key, value| match records.record(key, value) {
            Err(error) if key != b"size" => {
                malformed.get_or_insert(error.context(format!("record {}", shown(key))));
                Ok(())
            }
            parsed => parsed,
        })?;
        records.malformed = malformed;
        for (name, _) in &mut records.xattrs {
            // bsdtar writes both forms of each attribute.
            let is_of_libarchive = records.of_libarchive.remove(name).is_some();
            *name = decoded(name, is_of_libarchive);
        }
        for (name, value) in std::mem::take(&mut records.of_libarchive) {
            match base64::decode(&value) {
                Some(value) => records.xattrs.push((decoded(&name, true), value)),
                None => records.ignore(&[LIBARCHIVE_XATTR, &name].concat()),
            }
        }
        // The format 1.0 has the name and the map elsewhere.
        if let Some(name) = records.name.take() {
            records.path = Some(name);
        }
        Ok(records)
    }

    fn defaults(&self) -> Records {
        let Self { uid, gid, mtime, atime, .. } = *self;
        Records { uid, gid, mtime, atime, ..Records::default() }
    }
}

/// Calls `record` with the key and the value of each record, which is its length in decimal digits,
/// a space, `KEY=VALUE`, and a line end.
fn for_each(mut bytes: &[u8], mut record: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    while !bytes.is_empty() {
        let space = bytes.iter().position(|&byte| byte == b' ').context("a record without its length")?;
        let len: usize = str::from_utf8(&bytes[..space])?.parse().context("a record without its length")?;
        let line = bytes.get(space + 1..len).and_then(|line| line.strip_suffix(b"\n"));
        let line = line.context("a record that passes the end")?;
        let equals = line.iter().position(|&byte| byte == b'=').context("a record without a value")?;
        let key = &line[..equals];
        record(key, &line[equals + 1..]).with_context(|| format!("record {}", shown(key)))?;
        bytes = &bytes[len..];
    }
    Ok(())
}

impl Records {
    /// Sets what a record says. An empty value of a name, an owner, a size or a time removes what
    /// an earlier record said, as POSIX has it.
    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let text = || std::str::from_utf8(value).context("is not a number");
        match key {
            b"path" => self.path = unless_empty(value).map(<[u8]>::to_vec),
            b"linkpath" => self.linkpath = unless_empty(value).map(<[u8]>::to_vec),
            b"size" => self.size = unless_empty(value).map(number).transpose()?,
            b"uid" => self.uid = unless_empty(value).map(number).transpose()?,
            b"gid" => self.gid = unless_empty(value).map(number).transpose()?,
            b"mtime" => self.mtime = unless_empty(value).map(time).transpose()?,
            b"atime" => self.atime = unless_empty(value).map(time).transpose()?,
            b"GNU.sparse.major" => self.sparse().is_before_data = text()? == "1",
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.sparse().size = text()?.parse()?,
            b"GNU.sparse.name" => self.name = Some(value.to_vec()),
            b"GNU.sparse.offset" => {
                let offset = text()?.parse()?;
                self.sparse().add(offset, 0)?;
            }
            b"GNU.sparse.numbytes" => {
                let len = text()?.parse()?;
                if let Some(run) = self.sparse().runs.last_mut() {
                    run.1 = len;
                }
            }
            b"GNU.sparse.map" => {
                let numbers: Vec<u64> = text()?.split(',').map(str::parse).collect::<Result<_, _>>()?;
                for pair in numbers.chunks_exact(2) {
                    self.sparse().add(pair[0], pair[1])?;
                }
            }
            b"SCHILY.acl.access" => _ = self.lists.insert(ACCESS, value.to_vec()),
            b"SCHILY.acl.default" => _ = self.lists.insert(DEFAULT, value.to_vec()),
            b"SCHILY.fflags" => {
                let (flags, unknown) = flags::parse(text()?);
                self.flags = flags;
                let unknown = unknown.map(|name| format!("SCHILY.fflags={}", shown(name.as_bytes())));
                self.ignored.extend(unknown);
            }
            // GNU tar restores the text with a zero byte at its end, as libselinux stores it.
            b"RHT.security.selinux" => {
                self.xattrs.push((b"security.selinux".to_vec(), [value, b"\0"].concat()));
            }
            _ => {
                if let Some(name) = key.strip_prefix(XATTR) {
                    self.xattrs.push((name.into(), value.to_vec()));
                } else if let Some(name) = key.strip_prefix(LIBARCHIVE_XATTR) {
                    self.of_libarchive.insert(name.into(), value.to_vec());
                } else if !WITHOUT_EFFECT.contains(&key) {
                    self.ignore(key);
                }
            }
        }
        Ok(())
    }

    fn ignore(&mut self, key: &[u8]) {
        self.ignored.push(shown(key).into_owned());
    }

    fn sparse(&mut self) -> &mut Sparse {
        self.sparse.get_or_insert_default()
    }
}

impl Sparse {
    /// Returns a file of `size` bytes without data.
    pub fn new(size: u64) -> Self {
        Self { size, ..Self::default() }
    }

    /// Adds a run of data.
    pub fn add(&mut self, offset: u64, len: u64) -> Result<()> {
        ensure!(self.runs.len() < MOST_RUNS, "more than {MOST_RUNS} runs");
        self.runs.push((offset, len));
        Ok(())
    }

    /// Returns offsets and lengths of the data, which `data` then returns one after the other.
    pub fn runs(&mut self, data: &mut impl Read) -> Result<Vec<(u64, u64)>> {
        if !self.is_before_data {
            return Ok(std::mem::take(&mut self.runs));
        }
        // Decimal numbers, one in a line: how many runs, then offset and length of each; filled up
        // to a whole block.
        let mut lines = BufReader::with_capacity(1, data);
        let mut bytes = 0;
        let mut number = || -> Result<u64> {
            let mut line = Vec::new();
            bytes += (&mut lines).take(21).read_until(b'\n', &mut line)? as u64;
            let text = std::str::from_utf8(&line)?.trim_end_matches('\n');
            text.parse().context("the map of a sparse file is damaged")
        };
        let count = number()?;
        ensure!(count <= MOST_RUNS as u64, "a sparse file of {count} runs");
        let runs = (0..count).map(|_| Ok((number()?, number()?))).collect::<Result<Vec<_>>>()?;
        let padding = bytes.next_multiple_of(BLOCK) - bytes;
        std::io::copy(&mut lines.take(padding), &mut std::io::sink())?;
        Ok(runs)
    }
}

fn shown(key: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&key[..key.len().min(SHOWN)])
}

/// Decodes the name of an attribute: `%3D` and `%25`, which GNU tar writes for `=` and `%`, or
/// every `%XX` of libarchive.
fn decoded(name: &[u8], is_of_libarchive: bool) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [first, after @ ..] = rest {
        let digits = after.first_chunk::<2>().filter(|_| *first == b'%');
        let is_encoded = |digits: &[u8; 2]| match is_of_libarchive {
            true => digits.iter().all(u8::is_ascii_hexdigit),
            false => matches!(digits, b"3D" | b"25"),
        };
        let byte = digits
            .filter(|digits| is_encoded(digits))
            .and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    decoded
}

fn unless_empty(value: &[u8]) -> Option<&[u8]> {
    Some(value).filter(|value| !value.is_empty())
}

fn number<N: FromStr<Err = ParseIntError>>(value: &[u8]) -> Result<N> {
    Ok(str::from_utf8(value).context("is not a number")?.parse()?)
}

/// Parses seconds with a fraction, such as `-1.5`.
fn time(value: &[u8]) -> Result<Timestamp> {
    let text = str::from_utf8(value).context("is not a number")?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse()?;
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanoseconds: u32 = digits.parse()?;
    // The fraction counts away from zero, and the nanoseconds of a timestamp from the second
    // before.
    if whole.starts_with('-') && nanoseconds > 0 {
        let seconds = seconds.checked_sub(1).context("the time is out of range")?;
        return Ok(Timestamp { seconds, nanoseconds: 1_000_000_000 - nanoseconds });
    }
    Ok(Timestamp { seconds, nanoseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_nanoseconds() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        assert_eq!(time(b"12").unwrap(), at(12, 0));
        assert_eq!(time(b"12.5").unwrap(), at(12, 500_000_000));
        assert_eq!(time(b"12.1234567891").unwrap(), at(12, 123_456_789));
        assert_eq!(time(b"-1.25").unwrap(), at(-2, 750_000_000));
        assert!(time(b"x").is_err() && time(b"1.x").is_err());
    }

    #[test]
    fn maps_of_sparse_files_are_read() {
        let mut bytes = b"2\n0\n512\n1048576\n3\n".to_vec();
        bytes.resize(512, 0);
        bytes.extend(b"data");
        let records = b"22 GNU.sparse.major=1\n31 GNU.sparse.realsize=2000000\n";
        let mut sparse = Global::default().parse(records).unwrap().sparse.unwrap();
        let mut data = &bytes[..];
        assert_eq!(sparse.runs(&mut data).unwrap(), [(0, 512), (1_048_576, 3)]);
        assert_eq!((data, sparse.size), (&b"data"[..], 2_000_000));
        let old = b"21 GNU.sparse.size=9\n26 GNU.sparse.map=1,2,5,4\n";
        let mut sparse = Global::default().parse(old).unwrap().sparse.unwrap();
        assert_eq!(sparse.runs(&mut &b""[..]).unwrap(), [(1, 2), (5, 4)]);
    }

    #[test]
    fn values_may_contain_line_ends() {
        let records = Global::default().parse(b"27 SCHILY.xattr.user.x=1\n2\n11 path=ab\n").unwrap();
        assert_eq!(records.xattrs, [(b"user.x".to_vec(), b"1\n2".to_vec())]);
        assert_eq!(records.path.as_deref(), Some(&b"ab"[..]));
        for wrong in [&b"9 path=ab\n"[..], b"99 path=ab\n", b"path=ab\n", b"10 path ab\n", b"0 a=b\n"] {
            assert!(Global::default().parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(Global::default().parse(b"9 size=x\n").is_err());
        // The size follows the record that is malformed.
        let refused = Global::default().parse(b"11 mtime=x\n11 size=70\n").unwrap();
        assert!(refused.malformed.is_some() && refused.size == Some(70), "{refused:?}");
    }
}
