//! An export as a [`Device`].

use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::sync::Arc;

use parext4_device::{BufferPool, Device, DeviceOptions, Queue, Sharing, WriteGuard, check};

use crate::caller::{Step, call, flush};
use crate::command::{Action, Payload, Target};
use crate::pieces::{gather, pieces, write};
use crate::queue::NbdQueue;
use crate::recover;
use crate::session::Session;
use crate::url::NbdUrl;

/// Longest trim, bytes. The server's limit of requests does not count for requests without bytes.
const LONGEST_TRIM: u32 = 1 << 30;
/// Smallest preferred block size of a server, in bytes, that the client reports as the size of
/// pieces that the server stores apart.
const PIECE_FROM: u32 = 64 << 10;

/// An export of an NBD server, for reading and writing.
///
/// - After a lost connection the client connects again. Requests without an answer are sent again,
///   and so are answered writes that no answered flush covers. Requests block meanwhile.
/// - When the time of the URL's option `reconnect` is over, all requests fail, and so do all later
///   ones.
/// - Other machines can open the export at the same time: [`Sharing::Unfenced`].
#[derive(Debug)]
pub struct NbdDevice {
    session: Arc<Session>,
    /// Start of the volume in the export, bytes.
    base: u64,
    size: u64,
    read_only: bool,
}

impl NbdDevice {
    /// Opens an export. Of the options, only `read_only`, `offset`, `len` and `create` matter.
    ///
    /// Blocks until the server has answered, for at most about 10 seconds.
    ///
    /// # Errors
    /// Messages name the URL.
    /// - [`io::ErrorKind::NotFound`] if the server has no such export;
    /// - [`io::ErrorKind::ReadOnlyFilesystem`] if the export is read-only and the options are not;
    /// - [`io::ErrorKind::InvalidInput`] if the volume is not within the export, or the options ask
    ///   to create it;
    /// - [`io::ErrorKind::InvalidData`] if the server does not keep the protocol;
    /// - errors of connections, of the negotiation and of TLS.
    pub fn open(url: &NbdUrl, options: &DeviceOptions) -> io::Result<Self> {
        let refuse = |kind, why: &str| io::Error::new(kind, format!("{url}: {why}"));
        if options.create.is_some() {
            let why = "an NBD client cannot create an export; create it on the server";
            return Err(refuse(io::ErrorKind::InvalidInput, why));
        }
        let session = recover::open(url)?;
        let export = session.export;
        // Closes the connections if the export is refused.
        let mut device = Self { session, base: options.offset, size: 0, read_only: options.read_only };
        if export.read_only() && !options.read_only {
            let why = "the server has the export read-only; open it read-only";
            return Err(refuse(io::ErrorKind::ReadOnlyFilesystem, why));
        }
        let sector = u64::from(export.sector);
        let available = export.size.checked_sub(options.offset);
        let size = available.and_then(|available| match options.len {
            None => Some(available),
            Some(len) => (len <= available).then_some(len),
        });
        let size = size.ok_or_else(|| {
            let (offset, len) = (options.offset, options.len.unwrap_or(0));
            let size = export.size;
            let why = format!("volume at offset {offset} len {len} ends past the export's size {size}");
            refuse(io::ErrorKind::InvalidInput, &why)
        })?;
        if !options.offset.is_multiple_of(sector) {
            let why = format!("offset {} is not a multiple of the export's sector {sector}", options.offset);
            return Err(refuse(io::ErrorKind::InvalidInput, &why));
        }
        device.size = size / sector * sector;
        Ok(device)
    }
}

impl Device for NbdDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.session.export.sector
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len = check::read(self, offset, bufs)?;
        let mut steps: Vec<Step> = Vec::new();
        pieces(self.base + offset, len, self.session.export.largest, |at, len| {
            let buf = BufferPool::global().take(len as usize);
            steps.push((Action::Read(Target::Part(buf)), at, len));
        });
        let mut bufs = bufs.iter_mut().map(|buf| &mut **buf);
        let mut room: &mut [u8] = &mut [];
        for mut command in call(&self.session, steps)? {
            let len = command.len as usize;
            let Action::Read(target) = &mut command.action else { continue };
            let mut bytes: &[u8] = target.range(0, len);
            while !bytes.is_empty() {
                if room.is_empty() {
                    room = bufs.next().expect("the pieces have the length of the buffers");
                }
                let n = room.len().min(bytes.len());
                let (now, later) = room.split_at_mut(n);
                now.copy_from_slice(&bytes[..n]);
                (room, bytes) = (later, &bytes[n..]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = check::write(self, offset, bufs)?;
        let export = &self.session.export;
        let mut steps: Vec<Step> = Vec::new();
        let mut done = 0;
        pieces(self.base + offset, len, export.largest, |at, len| {
            let bytes = Arc::new(gather(bufs, done, len as usize));
            done += len as usize;
            steps.push((write(export, Payload::Copy(bytes, 0, len as usize)), at, len));
        });
        call(&self.session, steps).map(drop)
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only || !self.session.export.has_flush() {
            return Ok(());
        }
        flush(&self.session)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check::change_range(self, offset, len)?;
        if !self.session.export.has_trim() {
            return Ok(());
        }
        let mut steps: Vec<Step> = Vec::new();
        pieces(self.base + offset, len, LONGEST_TRIM, |at, len| steps.push((Action::Trim, at, len)));
        match call(&self.session, steps) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            result => result.map(drop),
        }
    }

    fn sharing(&self) -> Sharing {
        Sharing::Unfenced
    }

    fn guard_writes(&self, guard: Arc<dyn WriteGuard>) {
        self.session.guard.set(guard, self.base);
    }

    fn object_size(&self) -> Option<NonZeroU64> {
        let preferred = self.session.export.preferred;
        // A volume that begins within a piece has no piece `i` at `i` times the size.
        let is_aligned = self.base.is_multiple_of(preferred.into());
        (preferred > PIECE_FROM && is_aligned).then(|| NonZeroU64::new(preferred.into())).flatten()
    }

    fn native_queue(self: Arc<Self>, depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        let (session, base) = (Arc::clone(&self.session), self.base);
        Ok(Some(Box::new(NbdQueue::new(self, session, base, depth)?)))
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        self.session.close();
    }
}
