//! Buffered reads.

use std::io::IoSliceMut;

use rangelock::RangeLock;

use super::{Atomicity, File};
use crate::admission::Transfer;
use crate::convert::to_usize;
use crate::error::Result;
use crate::file::DirectFile;
use crate::inode::Cached;
use crate::inode_ref::Hold;
use crate::operation::Operation;
use crate::policy::Policy;

impl File {
    /// Reads into `buf` from byte `offset` on, and returns the number of bytes read. It is less
    /// than the length of `buf` only at the end of the file.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(b"text", 0)?;
    /// let mut bytes = [0; 8];
    /// assert_eq!(file.read_at(&mut bytes, 2)?, 2, "the file ends there");
    /// assert_eq!(&bytes[..2], b"xt");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of the device and of a corrupt map.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_vectored_at(&mut [IoSliceMut::new(buf)], offset)
    }

    /// Like [`read_at`](Self::read_at), into one buffer after the other.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use std::io::IoSliceMut;
    ///
    /// file.write_all_at(b"headbody", 0)?;
    /// let (mut head, mut body) = ([0; 4], [0; 4]);
    /// file.read_vectored_at(&mut [IoSliceMut::new(&mut head), IoSliceMut::new(&mut body)], 0)?;
    /// assert_eq!((&head, &body), (b"head", b"body"));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`read_at`](Self::read_at).
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let _in_flight = self.file.begin_read()?;
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let len = self.file.node.readable(offset, len);
        if len == 0 {
            return Ok(0);
        }
        let wanted = offset + len as u64;
        let whole = self.options.atomicity == Atomicity::Whole
            && self.file.engine().policy() != Policy::SharedOverwrite;
        let page_size = self.file.engine().page_size();
        let mut at = offset;
        if whole {
            at = self.read_held(bufs, at, wanted)?;
        } else {
            for buf in bufs {
                let end = wanted.min(at + buf.len() as u64);
                let len = to_usize(end - at);
                while at < end {
                    // This read ends at the end of a page.
                    let stop = end.min(page_size.round_down(at) + page_size.bytes() as u64);
                    let (done, rest) = (len - to_usize(end - at), to_usize(stop - at));
                    let piece = &mut [IoSliceMut::new(&mut buf[done..done + rest])];
                    let got = self.read_held(piece, at, stop)?;
                    if got < stop {
                        return Ok(to_usize(got.max(at) - offset));
                    }
                    at = stop;
                }
            }
        }
        Ok(to_usize(at - offset))
    }

    /// Reads `[offset, wanted)` under one range, and returns the offset at which the read ended.
    fn read_held(&self, bufs: &mut [IoSliceMut<'_>], offset: u64, wanted: u64) -> Result<u64> {
        let cached = self.cached()?;
        cached.pages.prefetch(cached.pages.page_size().page_at(offset));
        let mut transfer = Transfer::reading(Operation::BufferedRead { offset, end: wanted });
        let Some(held) = self.file.acquire_to_read(&mut transfer)? else { return Ok(offset) };
        let end = transfer.end();
        let (mut at, mut missed) = (offset, false);
        for buf in bufs {
            let len = buf.len().min(to_usize(end.saturating_sub(at)));
            missed |= self.file.copy_out(cached, held.hold(), &mut buf[..len], at, end)?;
            at += len as u64;
        }
        drop(held);
        self.read_ahead(offset, at, missed);
        Ok(at)
    }
}

impl DirectFile {
    /// Copies from the pages from byte `at` on. Reads missing pages up to byte `end`, where the
    /// read ends, and returns true if a page was missing.
    fn copy_out(
        &self,
        cached: &Cached,
        hold: &Hold<&RangeLock>,
        out: &mut [u8],
        at: u64,
        end: u64,
    ) -> Result<bool> {
        if self.read_inline(hold, out, at)? {
            return Ok(false);
        }
        let page_size = cached.pages.page_size();
        let (mut done, mut missed) = (0, false);
        while done < out.len() {
            let here = at + done as u64;
            let (index, within) = page_size.locate(here);
            let len = (page_size.bytes() - within).min(out.len() - done);
            if let Some(page) = cached.pages.get(index) {
                page.read(within, &mut out[done..done + len]);
                done += len;
            } else {
                missed = true;
                if !self.fill_pages(cached, hold, here, end)? {
                    self.read_past(hold, here, &mut out[done..done + len])?;
                    done += len;
                }
            }
        }
        Ok(missed)
    }
}
