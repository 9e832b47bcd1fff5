//! Calls on a file whose sectors may move, their effect on a model of the sectors, and the search
//! for an order of calls that explains their results.

use parext4::server::{PageFault, ServerFile};
use parext4::{DirectFile, Error, File, FileSize};

use super::one_file::{FILE, bytes, offset};
use std::io::{IoSlice, IoSliceMut};
use testkit::sector::{Seen, Stamp, fill_append, identify_all};

/// Sectors at the start of the file that no call touches. Writes are no longer, so a sector's
/// number within its write never exceeds its number in the file.
pub(crate) const FRONT: u64 = 64;

/// Contents of a sector: nothing, or the numbered part of a write.
pub(crate) type Tag = Option<(u64, u64)>;

/// The sectors past the front, up to the end of the file.
pub(crate) type Model = Vec<Tag>;

/// How data gets into or out of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Buffered,
    Vectored,
    /// Not for reads.
    Untorn,
}

/// Offsets and lengths are in sectors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Read { first: u64, sectors: u64, way: Way },
    Write { first: u64, sectors: u64, number: u64, way: Way },
    Append { sectors: u64, number: u64, way: Way },
    SetLen { size: u64 },
    Allocate { first: u64, sectors: u64, keep_size: bool },
    Punch { first: u64, sectors: u64 },
    Zero { first: u64, sectors: u64, keep_size: bool },
    Collapse { first: u64, sectors: u64 },
    Insert { first: u64, sectors: u64 },
    Fault { first: u64, write: bool },
    Sync { first: u64, sectors: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// An append, and its offset.
    At(u64),
    Saw(Vec<Tag>),
    /// An error for a call that is invalid in this state.
    Refused,
}

/// A call that has returned, with the moments before and after it.
#[derive(Clone, Debug)]
pub(crate) struct CompletedCall {
    pub call: Call,
    pub start: u64,
    pub end: u64,
    pub outcome: Outcome,
}

/// The contents of sectors that were read from `first` on.
pub(crate) fn tags(sectors: &[u8], first: u64) -> Vec<Tag> {
    let seen = identify_all(sectors, FILE, first).unwrap_or_else(|e| panic!("a read at sector {first}: {e}"));
    let tag = |(place, seen): (u64, Seen)| match seen {
        Seen::Zero => None,
        Seen::Data(stamp) => Some((stamp.sequence, place - stamp.origin)),
    };
    (first..).zip(seen).map(tag).collect()
}

impl Call {
    /// Makes the call.
    pub(crate) fn make(self, file: &File) -> Outcome {
        match self.try_make(file, file.direct()) {
            Ok(outcome) => outcome,
            Err(Error::Invalid(_)) => Outcome::Refused,
            Err(error) => panic!("{self:?}: {error}"),
        }
    }

    fn try_make(self, file: &File, direct: &DirectFile) -> Result<Outcome, Error> {
        match self {
            Self::Read { first, sectors, way } => {
                let (mut data, at) = (vec![0xee; bytes(sectors)], offset(first));
                let (one, other) = data.split_at_mut(bytes(sectors) / 3);
                let count = match way {
                    Way::Vectored => {
                        file.read_vectored_at(&mut [IoSliceMut::new(one), IoSliceMut::new(other)], at)
                    }
                    Way::Buffered => file.read_at(&mut data, at),
                    Way::Direct | Way::Untorn => direct.read_at(&mut data, at),
                }?;
                return Ok(Outcome::Saw(tags(&data[..count], first)));
            }
            Self::Write { first, sectors, number, way } => {
                let (data, at) = (filled(number, sectors), offset(first));
                let (one, other) = data.split_at(data.len() / 3);
                match way {
                    Way::Vectored => {
                        file.write_all_vectored_at(&[IoSlice::new(one), IoSlice::new(other)], at)
                    }
                    Way::Buffered => file.write_all_at(&data, at),
                    Way::Direct => direct.write_all_at(&data, at),
                    Way::Untorn => file.write_untorn(&data, at),
                }?;
            }
            Self::Append { sectors, number, way } => {
                let data = filled(number, sectors);
                let place = if way == Way::Direct { direct.append(&data) } else { file.append(&data) }?;
                return Ok(Outcome::At(place / offset(1)));
            }
            Self::SetLen { size } => file.set_len(offset(size))?,
            Self::Allocate { first, sectors, keep_size } => {
                direct.allocate(offset(first)..offset(first + sectors), FileSize::kept_if(keep_size))?;
            }
            Self::Punch { first, sectors } => direct.punch_hole(offset(first)..offset(first + sectors))?,
            Self::Zero { first, sectors, keep_size } => {
                direct.zero_range(offset(first)..offset(first + sectors), FileSize::kept_if(keep_size))?;
            }
            Self::Collapse { first, sectors } => {
                direct.collapse_range(offset(first)..offset(first + sectors))?;
            }
            Self::Insert { first, sectors } => direct.insert_range(offset(first)..offset(first + sectors))?,
            Self::Fault { first, write } => {
                file.fault(offset(first), if write { PageFault::Store } else { PageFault::Load })?;
            }
            Self::Sync { first, sectors } => file.sync_range(offset(first)..offset(first + sectors))?,
        }
        Ok(Outcome::Done)
    }

    /// Applies the call to the model and returns its result.
    fn apply(self, model: &mut Model) -> Outcome {
        let place = |sector: u64| usize::try_from(sector - FRONT).unwrap();
        let grow = |model: &mut Model, end: usize| model.resize(model.len().max(end), None);
        let within = |model: &Model, first: u64, sectors: u64| {
            place(first).min(model.len())..place(first + sectors).min(model.len())
        };
        match self {
            Self::Read { first, sectors, .. } => {
                return Outcome::Saw(model[within(model, first, sectors)].to_vec());
            }
            Self::Write { first, sectors, number, .. } => {
                grow(model, place(first + sectors));
                (0..).zip(&mut model[place(first)..place(first + sectors)]).for_each(|(nth, sector)| {
                    *sector = Some((number, nth));
                });
            }
            Self::Append { .. } => unreachable!("it counts as the write that it became"),
            Self::SetLen { size } => model.resize(place(size), None),
            Self::Allocate { first, sectors, keep_size } => {
                if !keep_size {
                    grow(model, place(first + sectors));
                }
            }
            Self::Punch { first, sectors } => {
                let range = within(model, first, sectors);
                model[range].fill(None);
            }
            Self::Zero { first, sectors, keep_size } => {
                if !keep_size {
                    grow(model, place(first + sectors));
                }
                let range = within(model, first, sectors);
                model[range].fill(None);
            }
            Self::Collapse { first, sectors } => {
                if place(first + sectors) >= model.len() {
                    return Outcome::Refused;
                }
                model.drain(place(first)..place(first + sectors));
            }
            Self::Insert { first, sectors } => {
                if place(first) >= model.len() {
                    return Outcome::Refused;
                }
                model.splice(place(first)..place(first), (0..sectors).map(|_| None));
            }
            Self::Fault { first, .. } if place(first) >= model.len() => return Outcome::Refused,
            Self::Fault { .. } | Self::Sync { .. } => {}
        }
        Outcome::Done
    }

    /// Sectors of the data that it writes.
    fn number(self) -> Option<u64> {
        match self {
            Self::Write { number, .. } | Self::Append { number, .. } => Some(number),
            _ => None,
        }
    }

    /// Sectors by which the call extends a file that does not end before its range.
    fn end(self) -> u64 {
        match self {
            Self::Write { first, sectors, .. }
            | Self::Allocate { first, sectors, keep_size: false }
            | Self::Zero { first, sectors, keep_size: false } => first + sectors,
            _ => 0,
        }
    }
}

fn filled(number: u64, sectors: u64) -> Vec<u8> {
    let mut data = vec![0; bytes(sectors)];
    fill_append(&mut data, Stamp { file: FILE, writer: 0, sequence: number, origin: 0 });
    data
}

impl CompletedCall {
    /// Returns the call; for an append, the write that it became.
    fn resolved(&self) -> Call {
        match (self.call, &self.outcome) {
            (Call::Append { sectors, number, way }, &Outcome::At(first)) => {
                Call::Write { first, sectors, number, way }
            }
            (call, _) => call,
        }
    }

    /// Returns true if the call was refused for a reason outside the model: the placement of
    /// blocks.
    fn is_refused_write(&self) -> bool {
        matches!(self.call, Call::Write { way: Way::Untorn, .. }) && self.outcome == Outcome::Refused
    }

    /// Returns the sectors of an append.
    fn appended(&self) -> u64 {
        if let Call::Append { sectors, .. } = self.call { sectors } else { 0 }
    }

    /// Returns true if the call may have had its result in the state `model`, which it then
    /// updates. An append goes to the end of the file, or to the end `announced` by earlier writes.
    /// The range between reads as zeros until they are done, or as data of a call concurrent with
    /// the append, which takes effect first then.
    fn leads_on(&self, model: &mut Model, burst: &Burst<'_>, left: &[&[Self]]) -> bool {
        if let Outcome::At(place) = self.outcome {
            let resolved = self.resolved();
            let (at, end) = (place - FRONT, resolved.end() - FRONT);
            let mut there = (0..).zip(model.iter()).filter(|&(sector, _)| (at..end).contains(&sector));
            let free = there.all(|(_, tag)| tag.is_none_or(|(number, _)| burst.has_beside(self, number)));
            let size = FRONT + model.len() as u64;
            let follows = place <= size || burst.has_announced(self, size, place, left);
            return free && follows && resolved.apply(model) == Outcome::Done;
        }
        self.is_refused_write() || self.call.apply(model) == self.outcome
    }
}

/// Returns true if the calls of several threads, each thread's in order, lead from one model to the
/// other in some order. No call comes before one that had ended when it began.
pub(crate) fn explained(before: &Model, threads: &[&[CompletedCall]], after: &Model) -> bool {
    Burst { threads, after }.leads_on(before, threads)
}

/// All calls of a burst, and the final contents.
struct Burst<'a> {
    threads: &'a [&'a [CompletedCall]],
    after: &'a Model,
}

impl Burst<'_> {
    /// Returns true if the calls in `left` can follow a model.
    fn leads_on(&self, model: &Model, left: &[&[CompletedCall]]) -> bool {
        let Some(first_over) = left.iter().filter_map(|made| made.first()).map(|made| made.end).min() else {
            return model == self.after;
        };
        (0..left.len()).any(|nth| {
            let Some((made, rest)) = left[nth].split_first() else { return false };
            let mut model = model.clone();
            if made.start > first_over || !made.leads_on(&mut model, self, left) {
                return false;
            }
            let mut left = left.to_vec();
            left[nth] = rest;
            self.leads_on(&model, &left)
        })
    }

    fn all(&self) -> impl Iterator<Item = &CompletedCall> {
        self.threads.iter().copied().flatten()
    }

    /// Returns true if the numbered write was concurrent with `made`.
    fn has_beside(&self, made: &CompletedCall, number: u64) -> bool {
        self.all().any(|other| other.call.number() == Some(number) && at_once(other, made))
    }

    /// Returns true if an earlier operation announced that a file of `size` would end at `place`: a
    /// call in flight, a refused write, or appends that claimed the range before it and moved when
    /// the size was set.
    fn has_announced(&self, made: &CompletedCall, size: u64, place: u64, left: &[&[CompletedCall]]) -> bool {
        let refused = self.all().filter(|other| other.is_refused_write()).map(|other| other.call.end());
        let under_way = left.iter().copied().flatten().filter(|other| other.start < made.end);
        let ends: Vec<u64> =
            refused.chain(under_way.map(|other| other.resolved().end())).chain([size]).collect();
        let voided = |other: &&CompletedCall| {
            !std::ptr::eq(*other, made) && self.is_voided(other) && at_once(other, made)
        };
        let claims: Vec<u64> = self.all().filter(voided).map(CompletedCall::appended).collect();
        ends_before(&ends, place, &claims)
    }

    /// Returns true if `made` is an append that may have claimed another offset before the size was
    /// set.
    fn is_voided(&self, made: &CompletedCall) -> bool {
        let sets_size = |other: &CompletedCall| {
            matches!(other.call, Call::SetLen { .. } | Call::Collapse { .. } | Call::Insert { .. })
        };
        made.appended() > 0 && self.all().any(|other| sets_size(other) && at_once(other, made))
    }
}

/// Returns true if some of the `claims`, each of the given length, fill the range from one of the
/// `ends` to `place`.
fn ends_before(ends: &[u64], place: u64, claims: &[u64]) -> bool {
    let fits = |(nth, len): (usize, &u64)| {
        place.checked_sub(*len).is_some_and(|start| ends_before(ends, start, &claims[nth + 1..]))
    };
    ends.contains(&place) || claims.iter().enumerate().any(fits)
}

/// Returns true if two calls were concurrent.
fn at_once(one: &CompletedCall, other: &CompletedCall) -> bool {
    one.start < other.end && other.start < one.end
}

/// Formats a model: runs of zeros, and of parts of one write.
pub(crate) fn describe(model: &Model) -> String {
    let mut text = String::new();
    let goes_on = |one: &Tag, next: &Tag| match (one, next) {
        (Some((number, nth)), Some(next)) => (*number, nth + 1) == *next,
        (one, next) => one == next,
    };
    let mut place = FRONT;
    for run in model.chunk_by(goes_on) {
        let what = run[0].map_or("zeros".to_owned(), |(number, nth)| format!("write {number} from {nth}"));
        let end = place + run.len() as u64;
        text += &format!("{place}..{end} {what}; ");
        place = end;
    }
    text
}
