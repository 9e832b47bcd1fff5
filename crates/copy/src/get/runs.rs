//! The data of a file with holes, for an archive.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

use crate::error::Result;
use parext4::DirectFile;
use parext4::device::AlignedBuf;

use crate::report::Report;

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// Offsets and lengths.
type Runs = Vec<(u64, u64)>;

/// Returns offsets and lengths of the data of a file with holes, at most `most`; `None` for a file
/// without holes. If there are more runs, some short holes count as data. Also returns the number
/// of bytes of data without any hole.
pub fn sparse_runs(file: &DirectFile, size: u64, most: usize) -> Result<(Option<Runs>, u64)> {
    let (mut runs, mut data, mut at) = (Runs::new(), 0, 0);
    while at < size {
        let Some(Range { start, end }) = file.data_range(at)? else { break };
        let end = end.min(size);
        if start >= end {
            break;
        }
        // One run more may follow for the end of the file.
        if runs.len() + 1 >= most {
            join(&mut runs);
        }
        runs.push((start, end - start));
        data += end - start;
        at = end;
    }
    // GNU tar takes the size of the file from the end of the last run.
    if at < size {
        runs.push((size, 0));
    }
    let has_holes = runs.iter().map(|(_, len)| len).sum::<u64>() < size;
    Ok((has_holes.then_some(runs), data))
}

/// Joins half of the runs with the ones before them, over short holes.
fn join(runs: &mut Vec<(u64, u64)>) {
    let hole = |run: &(u64, u64), next: &(u64, u64)| next.0 - (run.0 + run.1);
    let mut holes: Vec<u64> = runs.windows(2).map(|pair| hole(&pair[0], &pair[1])).collect();
    let half = holes.len() / 2;
    let (_, &mut longest, _) = holes.select_nth_unstable(half);
    let mut joined = 0;
    runs.dedup_by(|next, run| {
        let is_joined = joined <= half && hole(run, next) <= longest;
        if is_joined {
            joined += 1;
            run.1 = next.0 + next.1 - run.0;
        }
        is_joined
    });
}

/// Reads the runs of a file one after the other. An error is kept ([`failure`](Self::failure)), and
/// zeros take the place of the rest.
pub struct Data<'a> {
    file: &'a DirectFile,
    runs: std::vec::IntoIter<(u64, u64)>,
    /// The rest of the run that is being read.
    run: (u64, u64),
    buf: AlignedBuf,
    /// The bytes of the buffer that were not returned yet.
    ready: std::ops::Range<usize>,
    /// The offset and the error of the read that failed.
    failure: Option<(u64, io::Error)>,
    report: &'a Report<'a>,
}

impl<'a> Data<'a> {
    pub fn new(file: &'a DirectFile, runs: Vec<(u64, u64)>, report: &'a Report<'a>) -> Self {
        let largest = runs.iter().map(|(_, len)| *len).max().unwrap_or(0);
        let len = usize::try_from(largest).map_or(CHUNK, |len| len.next_multiple_of(4096).clamp(4096, CHUNK));
        Self {
            file,
            runs: runs.into_iter(),
            run: (0, 0),
            buf: AlignedBuf::zeroed(len),
            ready: 0..0,
            failure: None,
            report,
        }
    }

    /// Returns the offset and the error of the read that failed, if one has.
    pub fn failure(self) -> Option<(u64, io::Error)> {
        self.failure
    }

    /// Fills the buffer. Runs begin at blocks, and so at sectors.
    fn fill(&mut self) {
        while self.run.1 == 0 {
            let Some(run) = self.runs.next() else { return };
            self.run = run;
        }
        let wanted = usize::try_from(self.run.1).unwrap_or(usize::MAX).min(self.buf.len());
        let here = match self.read_run(wanted) {
            Ok(count) => {
                self.report.moved(count as u64);
                count
            }
            Err(error) => {
                self.failure.get_or_insert((self.run.0, error));
                self.buf[..wanted].fill(0);
                wanted
            }
        };
        self.run = (self.run.0 + here as u64, self.run.1 - here as u64);
        self.ready = 0..here;
    }

    /// Reads at most `wanted` bytes of the run. Fails after the first error.
    fn read_run(&mut self, wanted: usize) -> io::Result<usize> {
        if self.failure.is_some() {
            return Err(ErrorKind::Other.into());
        }
        match self.file.read_at(&mut self.buf, self.run.0)?.min(wanted) {
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "the file ended early")),
            count => Ok(count),
        }
    }
}

impl Read for Data<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.ready.is_empty() {
            self.report.check().map_err(io::Error::other)?;
            self.fill();
        }
        let here = self.ready.len().min(out.len());
        out[..here].copy_from_slice(&self.buf[self.ready.start..self.ready.start + here]);
        self.ready.start += here;
        Ok(here)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parext4::device::{FaultDevice, FaultKind, FaultPlan};
    use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};

    use super::*;
    use crate::options::CopyOptions;

    #[test]
    fn more_runs_than_the_limit_are_joined_over_short_holes() {
        // Runs of 4 bytes after holes of 1 to 9 bytes in turn, and of 1000 bytes before every tenth
        // run.
        let mut at = 0;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for n in 0..1000 {
            at += if n % 10 == 0 { 1000 } else { n % 10 };
            runs.push((at, 4));
            at += 4;
        }
        let before = runs.clone();
        join(&mut runs);
        assert_eq!(runs.len(), 500);
        assert!(runs.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "in order, with holes");
        let is_data = |at: u64| runs.iter().any(|run| (run.0..run.0 + run.1).contains(&at));
        assert!(before.iter().all(|run| is_data(run.0) && is_data(run.0 + 3)));
        assert!(runs.iter().all(|run| run.1 < 100), "no long hole became data");
    }

    #[test]
    fn of_equal_holes_half_are_joined() {
        let mut runs: Vec<(u64, u64)> = (0..101).map(|n| (n * 10, 5)).collect();
        join(&mut runs);
        assert_eq!((runs.len(), runs[0], runs[49]), (50, (0, 515), (1000, 5)));
        let mut runs = vec![(0, 1), (5, 1)];
        join(&mut runs);
        assert_eq!(runs, [(0, 6)]);
    }

    #[test]
    fn zeros_take_the_place_of_data_after_a_failed_read() {
        const SIZE: usize = 3 * CHUNK + 5;
        let memory = Arc::new(MemDevice::new(16 << 20));
        mkfs(&*memory, &MkfsOptions::new()).unwrap();
        let device = Arc::new(FaultDevice::new(memory, FaultPlan::default()));
        let volume = Volume::open_device(Arc::clone(&device) as _, &VolumeOptions::new()).unwrap();
        volume.write("/f", vec![7; SIZE]).unwrap();
        volume.sync().unwrap();
        let file = DirectFile::new(volume.resolve("/f").unwrap()).unwrap();
        let report = Report::new(&CopyOptions::new());
        let read = |plan| {
            let mut data = Data::new(&file, vec![(0, SIZE as u64)], &report);
            let mut bytes = vec![1; CHUNK];
            data.read_exact(&mut bytes).unwrap();
            device.arm(plan);
            data.read_to_end(&mut bytes).unwrap();
            (bytes, data.failure())
        };
        let (bytes, failure) = read(FaultPlan::default());
        assert!(failure.is_none() && bytes == vec![7; SIZE]);
        // The reads after it would succeed.
        let (bytes, failure) = read(FaultPlan::at(1).kind(FaultKind::Reads));
        assert_eq!(failure.unwrap().0, CHUNK as u64);
        assert_eq!(bytes.len(), SIZE);
        assert!(bytes[..CHUNK].iter().all(|byte| *byte == 7) && bytes[CHUNK..].iter().all(|byte| *byte == 0));
    }
}
