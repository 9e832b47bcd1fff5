//! Direct reads.

use std::ops::Deref;

use parext4_device::BufferPool;
use rangelock::{ByteRange, Mode, RangeLock};

use crate::admission::Transfer;
use crate::error::Result;
use crate::file::DirectFile;
use crate::inode_ref::Hold;
use crate::mapping::Runs;
use crate::operation::Operation;

/// Bytes of a file that fs-verity protects that are read and verified at once.
const VERIFIED_AT_ONCE: u64 = 1 << 20;

impl DirectFile {
    /// Reads into `buf` from byte `offset` on, and returns the number of bytes read. It is less
    /// than the length of `buf` only at the end of the file.
    ///
    /// `offset` must be a multiple of the sector size. So must the length of `buf`, unless the file
    /// ends before.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use parext4::AlignedBuf;
    ///
    /// let mut buf = AlignedBuf::zeroed(4096);
    /// file.write_all_at(&AlignedBuf::from_slice(&[7; 4096]), 0)?;
    /// assert_eq!(file.read_at(&mut buf, 0)?, 4096);
    /// assert_eq!(buf[0], 7);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a request that is not aligned to sectors; the
    /// errors of the device and of a corrupt map.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let _in_flight = self.begin_read()?;
        self.node.check_offset(offset)?;
        let wanted = self.node.readable(offset, buf.len());
        let buf = &mut buf[..wanted];
        if buf.is_empty() {
            return Ok(0);
        }
        let mut transfer = Transfer::reading(Operation::Read { offset, end: offset + wanted as u64 });
        let Some(held) = self.acquire_to_read(&mut transfer)? else { return Ok(0) };
        let runs = self.plan_read(held.hold(), &transfer, buf.len())?;
        if self.read_inline(held.hold(), &mut buf[..transfer.len()], offset)? {
            return Ok(transfer.len());
        }
        if self.inode().has_verity() {
            self.read_verified(&mut buf[..transfer.len()], offset)?;
            return Ok(transfer.len());
        }
        for piece in self.node.read_segments(offset, transfer.end(), &runs) {
            self.read_piece(&mut buf[piece.data], piece.at)?;
        }
        Ok(transfer.len())
    }

    /// Returns the parts of a granted read of `len` bytes, with their device offsets. There are
    /// none if the file now ends before the read.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a length that is not aligned to sectors; the
    /// error of a corrupt map.
    #[inline]
    pub(in crate::file) fn plan_read<L: Deref<Target = RangeLock>>(
        &self,
        hold: &Hold<L>,
        transfer: &Transfer,
        len: usize,
    ) -> Result<Runs> {
        let (offset, end, len) = (transfer.offset(), transfer.end(), len as u64);
        if end <= offset {
            return Ok(Runs::new());
        }
        self.node.check_len(len, end < offset + len || end == transfer.size())?;
        hold.assert_covers(&self.node, offset, end, Mode::Shared);
        self.node.runs(self.node.blocks_of(ByteRange::new(offset, end)))
    }

    /// Reads a part that is contiguous on the device; fills it with zeros if it has no device
    /// offset.
    fn read_piece(&self, piece: &mut [u8], at: Option<u64>) -> Result<()> {
        let Some(from) = at else {
            piece.fill(0);
            return Ok(());
        };
        // Only at the end of the file does a piece end inside a sector.
        let whole = piece.len() - piece.len() % self.sector_size() as usize;
        let (sectors, rest) = piece.split_at_mut(whole);
        if !sectors.is_empty() {
            self.node.read_device(from, sectors)?;
        }
        if !rest.is_empty() {
            let mut last = BufferPool::global().take(self.sector_size() as usize);
            self.node.read_device(from + whole as u64, &mut last)?;
            rest.copy_from_slice(&last[..rest.len()]);
        }
        Ok(())
    }

    /// Reads bytes of a file that fs-verity protects, past the cache. The range that the caller
    /// holds covers them.
    fn read_verified(&self, out: &mut [u8], at: u64) -> Result<()> {
        let page_size = self.engine().page_size();
        let pages = out.len().div_ceil(page_size.bytes()) + 1;
        let most = page_size.pages_in(VERIFIED_AT_ONCE) as usize;
        let mut bytes = BufferPool::global().take(pages.min(most) * page_size.bytes());
        let mut done = 0;
        while done < out.len() {
            let (first, within) = page_size.locate(at + done as u64);
            let len = (bytes.len() - within).min(out.len() - done);
            let pages = &mut bytes[..(within + len).next_multiple_of(page_size.bytes())];
            self.node.read_pages(page_size.start(first), pages)?;
            out[done..done + len].copy_from_slice(&pages[within..within + len]);
            done += len;
        }
        Ok(())
    }
}
