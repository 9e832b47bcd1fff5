//! The memory that a queue writes around the data of its operations, and that the device may still
//! read later.

use std::collections::VecDeque;

use parext4_device::{AlignedBuf, Segment, zeros};

use crate::block_io::{WriteSlice, fill_last_sector};
use crate::sync::Arc;

/// Memory around the data of writes.
#[derive(Debug, Default)]
pub(super) struct Padding {
    /// One block of zeros, allocated when first needed.
    zeros: Option<Arc<AlignedBuf>>,
    /// Last sectors of writes, the oldest first. Sectors that the device has written are reused,
    /// because allocating one takes longer than filling it.
    sectors: VecDeque<Arc<AlignedBuf>>,
}

impl Padding {
    /// Returns a stretch of a write whose data is in `data`, as a segment of a request.
    pub(super) fn segment(&mut self, slice: WriteSlice, data: &Arc<AlignedBuf>, sector: usize) -> Segment {
        match slice {
            WriteSlice::Zeros(len) => Segment { buf: Arc::clone(self.zeros()), start: 0, len },
            WriteSlice::Data(part) => Segment { buf: Arc::clone(data), start: part.start, len: part.len() },
            WriteSlice::LastSector(rest) => {
                Segment { buf: self.last_sector(&data[rest], sector), start: 0, len: sector }
            }
        }
    }

    fn zeros(&mut self) -> &Arc<AlignedBuf> {
        self.zeros.get_or_insert_with(|| Arc::new(AlignedBuf::zeroed(zeros().len())))
    }

    /// Returns a sector of `data` and zeros after it.
    fn last_sector(&mut self, data: &[u8], sector: usize) -> Arc<AlignedBuf> {
        let written = self.sectors.pop_front_if(|last| Arc::get_mut(last).is_some());
        let mut last = written.unwrap_or_else(|| Arc::new(AlignedBuf::zeroed(sector)));
        if let Some(last) = Arc::get_mut(&mut last) {
            fill_last_sector(last, data);
        }
        self.sectors.push_back(Arc::clone(&last));
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_sector_is_used_again_only_when_it_was_written_and_then_has_zeros_after_its_data() {
        let mut padding = Padding::default();
        let first = padding.last_sector(&[1; 500], 512);
        let second = padding.last_sector(&[2; 7], 512);
        assert_eq!((first[499], first[500], second[6], second[7]), (1, 0, 2, 0));
        let memory = first.as_ptr();
        drop(first);
        let third = padding.last_sector(&[3; 10], 512);
        assert_eq!(third.as_ptr(), memory);
        assert_eq!(third[..], [vec![3; 10], vec![0; 502]].concat());
        assert_eq!(second[..7], [2; 7]);
        assert_eq!(padding.sectors.len(), 2);
    }
}
