//! A file of a volume that is open in each way, and operations on it.

use parext4::device::AlignedBuf;
use parext4::{DirectFile, Error, File, FileSize, IoFlags, IoRequest, OpenOptions, Result, SyncMode, Volume};

use super::content::{Content, index};
use super::file_op::{FileOp, Outcome, Way};
use crate::slowest;

/// The handles of a file.
pub struct FileHandles {
    volume: Volume,
    /// For direct operations, and for operations that change no data.
    pub direct: DirectFile,
    /// For operations through the page cache.
    pub buffered: File,
    synced: File,
}

impl FileHandles {
    /// Returns handles of an open file.
    ///
    /// # Errors
    /// The errors of opening the other handles.
    pub fn new(volume: &Volume, direct: DirectFile) -> Result<Self> {
        let synced = OpenOptions::read_write().sync(SyncMode::Data);
        let synced = File::new(direct.inode_ref().clone(), &synced)?;
        Ok(Self { volume: volume.clone(), buffered: direct.buffered()?, synced, direct })
    }

    /// Runs an operation that writes `content`.
    ///
    /// # Errors
    /// The errors of the call.
    pub fn run(&self, op: FileOp, content: Content) -> Result<Outcome> {
        let (direct, buffered) = (&self.direct, &self.buffered);
        match op {
            FileOp::Read { way, offset, len } => return self.read(way, offset, len).map(Outcome::Read),
            FileOp::Write { way, offset, len } => self.write(way, offset, len, content)?,
            FileOp::Append { way, len } => {
                let data = content.bytes(direct.size(), len);
                return self.append(way, &data).map(Outcome::Appended);
            }
            FileOp::SetLen { size } => direct.set_len(size)?,
            FileOp::Allocate { offset, len, keep_size } => {
                direct.allocate(offset..offset + len, FileSize::kept_if(keep_size))?;
            }
            FileOp::PunchHole { offset, len } => direct.punch_hole(offset..offset + len)?,
            FileOp::ZeroRange { offset, len, keep_size } => {
                direct.zero_range(offset..offset + len, FileSize::kept_if(keep_size))?;
            }
            FileOp::CollapseRange { offset, len } => direct.collapse_range(offset..offset + len)?,
            FileOp::InsertRange { offset, len } => direct.insert_range(offset..offset + len)?,
            FileOp::SyncRange { offset, len } => {
                slowest::fsync(|| buffered.sync_range(offset..offset + len))?;
            }
            FileOp::SyncData { way } if way.is_direct() => slowest::fsync(|| direct.sync_data())?,
            FileOp::SyncData { .. } => slowest::fsync(|| buffered.sync_data())?,
            FileOp::SyncAll { way } if way.is_direct() => slowest::fsync(|| direct.sync_all())?,
            FileOp::SyncAll { .. } => slowest::fsync(|| buffered.sync_all())?,
            FileOp::Seek { offset } => return self.seek(offset).map(Outcome::Found),
        }
        Ok(Outcome::Done)
    }

    fn read(&self, way: Way, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0xee; index(len)];
        let count = match way {
            Way::Buffered | Way::Synced => self.buffered.read_at(&mut bytes, offset)?,
            Way::Direct | Way::Queued => self.direct.read_at(&mut bytes, offset)?,
        };
        bytes.truncate(count);
        Ok(bytes)
    }

    fn write(&self, way: Way, offset: u64, len: u64, content: Content) -> Result<()> {
        let data = content.bytes(offset, len);
        match way {
            Way::Buffered => self.buffered.write_all_at(&data, offset),
            Way::Synced => self.synced.write_all_at(&data, offset),
            Way::Direct => self.direct.write_all_at(&data, offset),
            Way::Queued => {
                // Two requests, if they can be of whole sectors. Between two requests an insertion
                // by another thread could move the sectors of the first one past the place of the
                // second one.
                let is_movable = matches!(content, Content::Movable(_));
                let half = if is_movable { 0 } else { data.len() / 2 / 512 * 512 };
                let (first, second) = data.split_at(half);
                let request = |data: &[u8], offset: u64| IoRequest::Write {
                    buf: AlignedBuf::from_slice(data),
                    len: data.len(),
                    offset,
                };
                let requests = [(first, offset), (second, offset + half as u64)];
                let requests = requests.into_iter().filter(|(data, _)| !data.is_empty());
                self.queue(requests.map(|(data, offset)| request(data, offset))).map(drop)
            }
        }
    }

    fn append(&self, way: Way, data: &[u8]) -> Result<u64> {
        match way {
            Way::Buffered => self.buffered.append(data),
            Way::Synced => self.synced.append(data),
            Way::Direct => self.direct.append(data),
            Way::Queued => {
                let buf = AlignedBuf::from_slice(data);
                self.queue([IoRequest::Append { buf, len: data.len() }])
            }
        }
    }

    /// Runs requests at once. Returns the result of the last one to complete.
    fn queue(&self, requests: impl IntoIterator<Item = IoRequest>) -> Result<u64> {
        let mut queue = self.volume.io_queue(2);
        for (token, request) in (0..).zip(requests) {
            queue.submit(&self.direct, request, token, IoFlags::new());
        }
        let mut done = Vec::new();
        while queue.in_flight() > 0 {
            queue.harvest(&mut done)?;
        }
        done.into_iter().try_fold(0, |_, completion| completion.result)
    }

    fn seek(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        match self.direct.seek_data(offset) {
            Err(Error::NothingAfter(_)) => Ok(None),
            Err(error) => Err(error),
            Ok(data) => Ok(Some((data, self.direct.seek_hole(data)?))),
        }
    }

    /// Returns all ranges of data, as seeks find them.
    ///
    /// # Errors
    /// The errors of the seeks.
    pub fn data(&self) -> Result<Vec<(u64, u64)>> {
        let (mut ranges, mut at) = (Vec::new(), 0);
        while let Some((start, end)) = self.seek(at)? {
            ranges.push((start, end));
            at = end;
        }
        Ok(ranges)
    }
}
