//! The locks to compare with, each as small as it can be.

use rangelock::{ByteRange, Mode};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, RwLock};

pub trait Ranges: Sync {
    /// What a thread prepares before the clock runs.
    type OfThread;

    fn of_thread(&self, operations: u64) -> Self::OfThread;

    /// Takes `range` and gives it back.
    fn visit(&self, own: &mut Self::OfThread, range: ByteRange, mode: Mode);
}

/// No lock: two compare-and-swaps on a word of the thread's own, which is the least that a lock can do that
/// knows who holds what.
#[derive(Default)]
pub struct CasPair;

impl Ranges for CasPair {
    type OfThread = Box<AtomicU64>;

    fn of_thread(&self, _: u64) -> Self::OfThread {
        Box::default()
    }

    fn visit(&self, word: &mut Self::OfThread, range: ByteRange, _: Mode) {
        let held = range.end();
        let taken = word.compare_exchange(0, held, Ordering::Acquire, Ordering::Relaxed);
        black_box(&taken);
        black_box(word.compare_exchange(held, 0, Ordering::Release, Ordering::Relaxed)).ok();
    }
}

impl Ranges for parking_lot::RwLock<()> {
    type OfThread = ();

    fn of_thread(&self, _: u64) {}

    fn visit(&self, (): &mut (), range: ByteRange, mode: Mode) {
        black_box(range);
        match mode {
            Mode::Shared => drop(black_box(self.read())),
            Mode::Exclusive => drop(black_box(self.write())),
        }
    }
}

impl Ranges for RwLock<()> {
    type OfThread = ();

    fn of_thread(&self, _: u64) {}

    fn visit(&self, (): &mut (), range: ByteRange, mode: Mode) {
        black_box(range);
        match mode {
            Mode::Shared => drop(black_box(self.read())),
            Mode::Exclusive => drop(black_box(self.write())),
        }
    }
}

/// A tree of the ranges held, under a mutex. Nobody has a place in a queue.
#[derive(Default)]
pub struct Tree {
    held: Mutex<BTreeMap<(u64, usize), (u64, Mode)>>,
    next: AtomicUsize,
    released: Condvar,
}

impl Ranges for Tree {
    type OfThread = usize;

    fn of_thread(&self, _: u64) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn visit(&self, thread: &mut usize, range: ByteRange, mode: Mode) {
        let conflicts = |(end, held): &(u64, Mode)| {
            *end > range.start() && (mode == Mode::Exclusive || *held == Mode::Exclusive)
        };
        let held = self.held.lock().expect("nobody panics");
        let blocked = |held: &mut BTreeMap<(u64, usize), (u64, Mode)>| {
            held.range(..(range.end(), 0)).any(|(_, other)| conflicts(other))
        };
        let mut held = self.released.wait_while(held, blocked).expect("nobody panics");
        held.insert((range.start(), *thread), (range.end(), mode));
        drop(held);
        black_box(range);
        self.held.lock().expect("nobody panics").remove(&(range.start(), *thread));
        self.released.notify_all();
    }
}

/// In the manner of Kogan, Dice and Issa (EuroSys 2020), the exclusive form: one list of the ranges held, in
/// order. A request enters it by one compare-and-swap, or spins while one that it overlaps is there; a release
/// marks its node, which the next to pass unlinks.
///
/// Nodes are used once, so there is nothing to reclaim: better than the real thing could do.
#[derive(Default)]
pub struct List {
    head: AtomicU64,
    nodes: OnceLock<Box<[Node]>>,
    used: AtomicU64,
}

/// Links are numbers of nodes, 1 and up, times 2, plus 1 if the node that has the link was released.
#[derive(Default)]
struct Node {
    start: AtomicU64,
    end: AtomicU64,
    next: AtomicU64,
}

const MOST_THREADS: u64 = 8;
const RELEASED: u64 = 1;

impl Ranges for List {
    type OfThread = u64;

    fn of_thread(&self, operations: u64) -> u64 {
        let make = || (0..=MOST_THREADS * operations).map(|_| Node::default()).collect();
        self.nodes.get_or_init(make);
        self.used.fetch_add(operations, Ordering::Relaxed)
    }

    fn visit(&self, used: &mut u64, range: ByteRange, _: Mode) {
        *used += 1;
        let nodes = self.nodes.get().expect("a thread has come");
        let node = &nodes[*used as usize];
        node.start.store(range.start(), Ordering::Relaxed);
        node.end.store(range.end(), Ordering::Relaxed);
        while !self.insert(nodes, *used) {}
        black_box(range);
        if self.head.load(Ordering::Relaxed) == *used << 1
            && node.next.load(Ordering::Relaxed) == 0
            && self.head.compare_exchange(*used << 1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            return;
        }
        node.next.fetch_or(RELEASED, Ordering::Release);
    }
}

impl List {
    /// Walks the list to the place of a new node; false if it must start again.
    fn insert(&self, nodes: &[Node], new: u64) -> bool {
        let node = |link: u64| &nodes[(link >> 1) as usize];
        let (start, end) = (&nodes[new as usize].start, &nodes[new as usize].end);
        let (start, end) = (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
        let mut link = &self.head;
        let mut at = link.load(Ordering::Acquire);
        loop {
            if at & RELEASED != 0 {
                return false;
            }
            if at != 0 {
                let next = node(at).next.load(Ordering::Acquire);
                if next & RELEASED != 0 {
                    let unlinked =
                        link.compare_exchange(at, next - RELEASED, Ordering::AcqRel, Ordering::Acquire);
                    at = if unlinked.is_ok() { next - RELEASED } else { link.load(Ordering::Acquire) };
                    continue;
                }
                if node(at).end.load(Ordering::Relaxed) <= start {
                    (link, at) = (&node(at).next, next);
                    continue;
                }
                if node(at).start.load(Ordering::Relaxed) < end {
                    // More threads than processors may run.
                    std::thread::yield_now();
                    at = link.load(Ordering::Acquire);
                    continue;
                }
            }
            nodes[new as usize].next.store(at, Ordering::Relaxed);
            match link.compare_exchange(at, new << 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => at = now,
            }
        }
    }
}
