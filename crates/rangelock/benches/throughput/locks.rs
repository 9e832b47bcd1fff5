//! The locks that rangelock is compared with, each as small as possible.

use parking_lot::{Condvar, Mutex};
use rangelock::{ByteRange, Mode};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{OnceLock, RwLock};

pub trait Ranges: Sync {
    /// State of one thread, made before the measurement starts.
    type OfThread;

    fn of_thread(&self, operations: u64) -> Self::OfThread;

    /// Acquires and releases `range`.
    fn visit(&self, own: &mut Self::OfThread, range: ByteRange, mode: Mode);
}

/// No lock: two compare-and-swaps on a word of the thread's own. This is the lower bound for a lock
/// that records what is held.
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

/// A tree of the held ranges, by their starts, under a mutex; unfair. Each thread holds one range,
/// so an interval tree (with the last end below each node) would save nothing.
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
        let mut held = self.held.lock();
        let blocked = |held: &mut BTreeMap<(u64, usize), (u64, Mode)>| {
            held.range(..(range.end(), 0)).any(|(_, other)| conflicts(other))
        };
        self.released.wait_while(&mut held, blocked);
        held.insert((range.start(), *thread), (range.end(), mode));
        drop(held);
        black_box(range);
        self.held.lock().remove(&(range.start(), *thread));
        self.released.notify_all();
    }
}

/// The list of Kogan, Dice and Issa (EuroSys 2020): all held ranges, sorted by their starts. A
/// request inserts its node by one compare-and-swap, or spins while it conflicts with a node. A
/// release marks its node, and the next thread that walks past it unlinks it. A single request
/// acquires and releases the head of the list.
///
/// Each node is used once and never reclaimed, which favours this lock.
#[derive(Default)]
pub struct List {
    /// Marked if the first node is the only one and no other thread has visited it.
    head: AtomicU64,
    nodes: OnceLock<Box<[Node]>>,
    used: AtomicU64,
}

/// A node. A link is twice the number of a node, from 1, plus the mark.
#[derive(Default)]
struct Node {
    start: AtomicU64,
    end: AtomicU64,
    shared: AtomicBool,
    /// Link to the next node. Marked if this node was released.
    next: AtomicU64,
}

const MOST_THREADS: u64 = 8;
const MARK: u64 = 1;

impl Ranges for List {
    type OfThread = u64;

    fn of_thread(&self, operations: u64) -> u64 {
        let make = || (0..=MOST_THREADS * operations).map(|_| Node::default()).collect();
        self.nodes.get_or_init(make);
        self.used.fetch_add(operations, Ordering::Relaxed)
    }

    fn visit(&self, used: &mut u64, range: ByteRange, mode: Mode) {
        let nodes = self.nodes.get().expect("`of_thread` allocates the nodes");
        let link = loop {
            *used += 1;
            let link = *used << 1;
            node(nodes, link).set(range, mode);
            if self.enter(nodes, link) {
                break link;
            }
        };
        black_box(range);
        let is_alone = self.head.load(Ordering::Relaxed) == link | MARK;
        if !is_alone || !replaced(&self.head, link | MARK, 0) {
            node(nodes, link).next.fetch_or(MARK, Ordering::Release);
        }
    }
}

fn node(nodes: &[Node], link: u64) -> &Node {
    &nodes[(link >> 1) as usize]
}

fn replaced(place: &AtomicU64, old: u64, new: u64) -> bool {
    place.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

impl Node {
    fn set(&self, range: ByteRange, mode: Mode) {
        self.start.store(range.start(), Ordering::Relaxed);
        self.end.store(range.end(), Ordering::Relaxed);
        self.shared.store(mode == Mode::Shared, Ordering::Relaxed);
    }

    fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }

    fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }
}

impl List {
    /// Inserts the node. Returns false if the node conflicts and was released in the list.
    fn enter(&self, nodes: &[Node], new: u64) -> bool {
        if self.head.load(Ordering::Relaxed) == 0 && replaced(&self.head, 0, new | MARK) {
            return true;
        }
        while !self.insert(nodes, new) {}
        // A conflicting node may have been inserted meanwhile in a part of the list that this
        // thread had passed.
        if node(nodes, new).is_shared() {
            Self::wait_for_writers_behind(nodes, new);
            return true;
        }
        let fits = self.fits_behind_readers(nodes, new);
        if !fits {
            node(nodes, new).next.fetch_or(MARK, Ordering::Release);
        }
        fits
    }

    /// Walks the list and inserts the new node. Returns false if the caller must start again.
    fn insert(&self, nodes: &[Node], new: u64) -> bool {
        let node = |link| node(nodes, link);
        let own = node(new);
        let mut at = self.head.load(Ordering::Acquire);
        if at & MARK != 0 {
            replaced(&self.head, at, at - MARK);
            return false;
        }
        let mut link = &self.head;
        loop {
            if at & MARK != 0 {
                return false;
            }
            if at != 0 {
                let (other, next) = (node(at), node(at).next.load(Ordering::Acquire));
                if next & MARK != 0 {
                    at = if replaced(link, at, next - MARK) {
                        next - MARK
                    } else {
                        link.load(Ordering::Acquire)
                    };
                    continue;
                }
                let both_shared = own.is_shared() && other.is_shared();
                if other.end() <= own.start() || (both_shared && other.start() <= own.start()) {
                    (link, at) = (&other.next, next);
                    continue;
                }
                if other.start() < own.end() && !both_shared {
                    // Yields, because there may be more threads than processors.
                    std::thread::yield_now();
                    at = link.load(Ordering::Acquire);
                    continue;
                }
            }
            own.next.store(at, Ordering::Relaxed);
            match link.compare_exchange(at, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => at = now,
            }
        }
    }

    fn wait_for_writers_behind(nodes: &[Node], new: u64) {
        let own = node(nodes, new);
        let mut at = own.next.load(Ordering::Acquire);
        while at != 0 && node(nodes, at).start() < own.end() {
            let other = node(nodes, at);
            while !other.is_shared() && other.next.load(Ordering::Acquire) & MARK == 0 {
                std::thread::yield_now();
            }
            at = other.next.load(Ordering::Acquire) & !MARK;
        }
    }

    fn fits_behind_readers(&self, nodes: &[Node], new: u64) -> bool {
        let own = node(nodes, new);
        let mut at = self.head.load(Ordering::Acquire) & !MARK;
        while at != new && at != 0 {
            let (other, next) = (node(nodes, at), node(nodes, at).next.load(Ordering::Acquire));
            if next & MARK == 0 && other.end() > own.start() {
                return false;
            }
            at = next & !MARK;
        }
        true
    }
}
