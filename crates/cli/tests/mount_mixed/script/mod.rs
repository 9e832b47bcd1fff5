//! Scripts: the same steps, one by one, on two volumes, which must have the same results.
//!
//! Several handles of different kinds are open on one file at once. Transfers are in flight during
//! other steps, which use other pages, so the results do not depend on the progress of the
//! transfers. Sometimes all handles are closed, and both volumes are made read-only, compared, and
//! mounted again.

mod differences;
mod handles;
mod op;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use self::differences::Search;
use self::handles::{Handles, Outcome};
use self::op::{Chooser, FILES, Op, PAGE, Range, Slot, Step, View};
use crate::side::{Kind, Side};
use crate::watch::{Connection, Watch};

/// Number of steps that are printed after a difference.
const SHOWN: usize = 60;
/// A mount with write-back caching in the kernel.
pub const WRITES_BACK: Kind = Kind::Ours("cache=writeback");
/// Steps of one script.
const STEPS: u64 = 2_000;

/// One side, in a thread of its own, which acts as several users.
struct SideThread {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

enum Request {
    Run(u64, Step),
    ReadFiles,
    Contents(usize),
    CloseAll,
}

/// The result of a step, and the state of the files after it.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    outcome: Outcome,
    files: Vec<String>,
    sizes: [u64; FILES],
    /// The contents, by direct I/O and through the page cache.
    contents: Vec<Outcome>,
}

impl SideThread {
    fn start(dir: std::path::PathBuf, watch: std::sync::Arc<Watch>, nth: usize) -> Self {
        let (requests, orders) = channel();
        let (reply, answers) = channel();
        let thread = std::thread::spawn(move || {
            let mut handles = watch.call(nth, || "making files".to_owned(), || Handles::new(dir));
            for request in orders {
                let name = || match &request {
                    Request::Run(step, Step { user, op }) => format!("step {step}, {user:?}: {op:?}"),
                    Request::ReadFiles => "reading the files".to_owned(),
                    Request::Contents(slot) => format!("reading handle {slot}"),
                    Request::CloseAll => "closing all handles".to_owned(),
                };
                let answer = watch.call(nth, name, || answer(&mut handles, &request));
                if reply.send(answer).is_err() {
                    return;
                }
            }
        });
        Self { requests, answers, thread: Some(thread) }
    }

    fn send(&self, request: Request) {
        self.requests.send(request).expect("the thread runs until its channel is closed");
    }

    fn answer(&self) -> Answer {
        self.answers.recv().expect("the thread answers")
    }
}

fn answer(handles: &mut Handles, request: &Request) -> Answer {
    let (outcome, contents) = match request {
        Request::Run(nth, step) => (handles.run(*nth, step), Vec::new()),
        Request::ReadFiles => {
            let contents = (0..FILES).flat_map(|file| [(file, true), (file, false)]);
            let contents = contents.map(|(file, direct)| handles.contents(file, direct)).collect();
            (Ok(handles::Value::Done), contents)
        }
        Request::Contents(slot) => (handles.contents_of(*slot), Vec::new()),
        Request::CloseAll => {
            handles.close_all();
            (Ok(handles::Value::Done), Vec::new())
        }
    };
    let files = (0..FILES).map(|file| handles.describe(file));
    let open = (0..op::SLOTS).map(|slot| handles.describe_open(slot));
    let files = files.chain(open).collect();
    Answer { outcome, files, sizes: std::array::from_fn(|file| handles.size(file)), contents }
}

impl Drop for SideThread {
    fn drop(&mut self) {
        self.requests = channel().0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs the script of a seed on two sides. `name` repeats it.
///
/// # Panics
/// If a step has another result on the second side than on the first.
pub fn run(name: &str, seed: u64, kinds: [Kind; 2], block_size: u32) -> Option<()> {
    let mut sides = [Side::mounted(kinds[0], block_size)?, Side::mounted(kinds[1], block_size)?];
    let watch = std::sync::Arc::new(Watch::start(name, connections(&sides), sides.len() + 1));
    let threads: Vec<_> = sides
        .iter()
        .enumerate()
        .map(|(nth, side)| SideThread::start(side.dir(), std::sync::Arc::clone(&watch), nth))
        .collect();
    let mut script = Script {
        name,
        kinds,
        threads,
        view: View { writes_back: kinds.contains(&WRITES_BACK), ..View::default() },
        last: VecDeque::new(),
    };
    let mut chooser = Chooser::new(seed);
    for nth in 0..STEPS {
        let step = chooser.next(&script.view);
        script.step(nth, &step);
        if script.view.under_way.is_empty() && chooser.reads_files() {
            script.read_files(nth);
        }
        if script.view.under_way.is_empty() && chooser.mounts_again() {
            watch.call(2, || "mounting again".to_owned(), || script.mount_again(nth, &mut sides));
            watch.reconnect(connections(&sides));
        }
    }
    script.step(STEPS, &Step { user: crate::users::User::Root, op: Op::Reap });
    script.read_files(STEPS);
    drop(script);
    drop(watch);
    sides.into_iter().for_each(Side::finish);
    Some(())
}

fn connections(sides: &[Side]) -> Vec<Connection> {
    sides.iter().filter_map(Side::connection).cloned().collect()
}

struct Script<'a> {
    name: &'a str,
    kinds: [Kind; 2],
    threads: Vec<SideThread>,
    view: View,
    last: VecDeque<String>,
}

impl Script<'_> {
    fn step(&mut self, nth: u64, step: &Step) {
        let (wanted, found) = self.both(|| Request::Run(nth, step.clone()));
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back(format!("{nth}: {:?}: {:?} -> {:?}", step.user, step.op, wanted.outcome));
        self.note(&step.op, &wanted.outcome);
        let (wanted, mut found) = (self.settle(wanted), self.settle(found));
        if wanted.outcome != found.outcome && self.is_as_good(step, &wanted.outcome, &found.outcome) {
            found.outcome = wanted.outcome.clone();
        }
        self.compare(&wanted, &found);
        self.view.sizes = wanted.sizes;
    }

    fn read_files(&mut self, nth: u64) {
        let (wanted, found) = self.both(|| Request::ReadFiles);
        self.last.push_back(format!("{nth}: reading the files"));
        self.compare(&wanted, &found);
    }

    /// Compares the volumes while they are read-only, and mounts them again.
    fn mount_again(&mut self, nth: u64, sides: &mut [Side; 2]) {
        let (wanted, found) = self.both(|| Request::CloseAll);
        self.view.slots = std::array::from_fn(|_| None);
        self.compare(&wanted, &found);
        let [first, second] = &*sides;
        first.remount(|| second.remount(|| self.read_files(nth)));
        self.last.push_back(format!("{nth}: mounting again"));
        sides.iter_mut().zip(self.kinds).for_each(|(side, kind)| side.mount_again(kind));
        self.read_files(nth);
    }

    fn both(&self, request: impl Fn() -> Request) -> (Answer, Answer) {
        self.threads.iter().for_each(|thread| thread.send(request()));
        (self.threads[0].answer(), self.threads[1].answer())
    }

    /// Returns true if the second result is as correct as the first.
    fn is_as_good(&self, step: &Step, wanted: &Outcome, found: &Outcome) -> bool {
        // The kernel's results depend on the pages that it has written back, on either side.
        let is_kernel_twice = self.kinds == [Kind::Kernel; 2];
        if let Op::SeekData { slot, offset } | Op::SeekHole { slot, offset } = step.op {
            let Some(contents) = self.contents(slot) else { return false };
            let open = self.view.slots[slot];
            let mapped = open.and_then(|open| self.view.mapped.get(&(open.file, open.made)));
            let mapped = &mapped.cloned().unwrap_or_default();
            let search = Search { op: &step.op, offset, contents: &contents, mapped };
            return search.is_as_sparse(wanted, found)
                || is_kernel_twice && search.is_as_sparse(found, wanted);
        }
        differences::is_of_fuse(&step.op, wanted, found, self.view.flags_for(&step.op))
    }

    /// Returns the contents of the file of a slot on the first side.
    fn contents(&self, slot: usize) -> Option<Vec<u8>> {
        self.threads[0].send(Request::Contents(slot));
        match self.threads[0].answer().outcome {
            Ok(handles::Value::Bytes(contents)) => Some(contents),
            _ => None,
        }
    }

    /// Removes results that depend on the progress of transfers that may extend their file.
    fn settle(&self, mut answer: Answer) -> Answer {
        for range in &self.view.under_way {
            // Writes clear set-ID bits.
            answer.files[range.file].clear();
            for (slot, open) in self.view.slots.iter().enumerate() {
                if open.is_some_and(|open| open.file == range.file) {
                    answer.files[FILES + slot].clear();
                }
            }
            if range.end == u64::MAX {
                answer.sizes[range.file] = 0;
            }
        }
        answer
    }

    fn compare(&self, wanted: &Answer, found: &Answer) {
        if wanted == found {
            return;
        }
        let mut text = format!("{}: after\n", self.name);
        self.last.iter().for_each(|line| text += &format!("    {line}\n"));
        text += &format!("{:?} came to {:?}\n", self.kinds[0], wanted.outcome);
        text += &format!("{:?} came to {:?}\n", self.kinds[1], found.outcome);
        if let (Ok(handles::Value::Bytes(wanted)), Ok(handles::Value::Bytes(found))) =
            (&wanted.outcome, &found.outcome)
        {
            text += &differences(wanted, found);
        }
        for (wanted, found) in wanted.files.iter().zip(&found.files).filter(|(wanted, found)| wanted != found)
        {
            text += &format!("    wanted {wanted}\n    found  {found}\n");
        }
        for (nth, (wanted, found)) in wanted.contents.iter().zip(&found.contents).enumerate() {
            if let (Ok(handles::Value::Bytes(wanted)), Ok(handles::Value::Bytes(found))) = (wanted, found)
                && wanted != found
            {
                let way = if nth % 2 == 0 { "past the page cache" } else { "through the page cache" };
                text += &format!("    file {}, {way}: {}", nth / 2, differences(wanted, found));
            } else if wanted != found {
                text += &format!("    wanted {wanted:?}\n    found  {found:?}\n");
            }
        }
        panic!("{text}");
    }

    /// Updates the state on which the choices depend.
    fn note(&mut self, op: &Op, outcome: &Outcome) {
        let view = &mut self.view;
        match *op {
            Op::Submit { slot, offset, len, .. } => {
                if let Some(open) = view.slots[slot] {
                    let (start, end) = (offset / 4096 * 4096, (offset + len).next_multiple_of(4096));
                    // The end of the file is unknown until the transfer is over.
                    let end = if open.flags.append || end > view.sizes[open.file] { u64::MAX } else { end };
                    let start = if end == u64::MAX { 0 } else { start };
                    view.under_way.push(Range { file: open.file, made: open.made, start, end });
                }
            }
            Op::Reap => view.under_way.clear(),
            _ if outcome.is_err() => {}
            Op::Open { slot, file, flags } => {
                view.slots[slot] = Some(Slot { file, made: view.made[file], flags, map: None });
            }
            Op::Close { slot } => view.slots[slot] = None,
            Op::Map { slot, len, writable } => {
                if let Some(open) = &mut view.slots[slot] {
                    open.map = Some((len, writable));
                }
            }
            Op::Unmap { slot } => {
                if let Some(open) = &mut view.slots[slot] {
                    open.map = None;
                }
            }
            Op::MapWrite { slot, offset, len } => {
                if let Some(open) = view.slots[slot] {
                    let pages = offset / PAGE..(offset + len).div_ceil(PAGE);
                    view.mapped.entry((open.file, open.made)).or_default().extend(pages);
                }
            }
            Op::Replace { file } | Op::RenameOver { file, .. } => view.made[file] += 1,
            Op::SetFlags { slot, flags } => {
                if let Some(open) = view.slots[slot] {
                    view.flags.insert((open.file, open.made), flags);
                }
            }
            _ => {}
        }
    }
}

/// Describes where bytes differ.
fn differences(wanted: &[u8], found: &[u8]) -> String {
    let first = wanted.iter().zip(found).position(|(wanted, found)| wanted != found);
    let last = wanted.iter().zip(found).rposition(|(wanted, found)| wanted != found);
    match (first, last) {
        (Some(first), Some(last)) => {
            let count = wanted.iter().zip(found).filter(|(wanted, found)| wanted != found).count();
            let (want, have) =
                (&wanted[first..wanted.len().min(first + 8)], &found[first..found.len().min(first + 8)]);
            format!("{count} bytes differ from {first} to {last}: {have:02x?}, not {want:02x?}\n")
        }
        _ => format!("{} bytes, not {}\n", found.len(), wanted.len()),
    }
}
