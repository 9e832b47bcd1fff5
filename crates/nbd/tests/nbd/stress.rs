//! Queues and threads on a server that is restarted under them, and loses its cache each time.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use testkit::nbd::Reply;
use testkit::rng::Rng;
use testkit::sector::{SECTOR, Seen, Stamp, filled, identify_all};
use testkit::settings;

/// Sectors of a block. Each writer has `OWN` blocks, and all share `SHARED` more.
const BLOCK: u64 = 8;
const OWN: u64 = 40;
const SHARED: u64 = 16;
const WRITERS: u64 = 6;
const FILE: u32 = 1;

fn sectors(first: u64, writer: u32, sequence: u64) -> Vec<u8> {
    filled(first, BLOCK, Stamp { file: FILE, writer, sequence, origin: 0 })
}

/// The blocks of a writer, and the number of the newest write of each that was answered.
struct Writer {
    number: u64,
    rng: Rng,
    newest: Vec<u64>,
    sequence: u64,
}

impl Writer {
    fn new(number: u64, seed: u64) -> Self {
        Self { number, rng: Rng::new(seed, number), newest: vec![0; OWN as usize], sequence: 0 }
    }

    fn first_sector(&self, block: u64) -> u64 {
        (self.number * OWN + block) * BLOCK
    }

    /// Compares what a read of a block of its own found.
    fn check(&self, block: u64, bytes: &[u8]) {
        let first = self.first_sector(block);
        let expected = match self.newest[block as usize] {
            0 => vec![0; bytes.len()],
            sequence => sectors(first, self.number as u32, sequence),
        };
        let seen = || identify_all(bytes, FILE, first);
        assert!(bytes == expected, "writer {} block {block}: {:?}", self.number, seen());
    }

    /// Makes blocking calls until `stop`.
    fn calls(&mut self, device: &dyn Device, stop: &AtomicBool) {
        while !stop.load(SeqCst) {
            let block = self.rng.below(OWN);
            let offset = self.first_sector(block) * SECTOR as u64;
            match self.rng.below(10) {
                0..5 => {
                    self.sequence += 1;
                    let bytes = sectors(self.first_sector(block), self.number as u32, self.sequence);
                    device.write_at(offset, &[IoSlice::new(&bytes)]).unwrap();
                    self.newest[block as usize] = self.sequence;
                }
                5 => device.flush().unwrap(),
                6..8 => self.shared(device),
                _ => self.check(block, &read(device, offset, BLOCK as usize * SECTOR).unwrap()),
            }
        }
    }

    /// Writes a block that all share, or reads one, which must be a whole write of one of them.
    fn shared(&mut self, device: &dyn Device) {
        let first = (WRITERS * OWN + self.rng.below(SHARED)) * BLOCK;
        let offset = first * SECTOR as u64;
        if self.rng.chance(50) {
            self.sequence += 1;
            let bytes = sectors(first, self.number as u32, self.sequence);
            return device.write_at(offset, &[IoSlice::new(&bytes)]).unwrap();
        }
        let bytes = read(device, offset, BLOCK as usize * SECTOR).unwrap();
        let seen = identify_all(&bytes, FILE, first).unwrap();
        let is_whole = seen.iter().all(|seen| match (seen, &seen_stamp(&bytes, first)) {
            (Seen::Zero, None) => true,
            (Seen::Data(stamp), Some(whole)) => stamp == whole,
            _ => false,
        });
        assert!(is_whole, "a torn block: {seen:?}");
    }

    /// Keeps a queue full until `stop`. Blocks in flight are different.
    fn queued(&mut self, device: &Arc<dyn Device>, stop: &AtomicBool) {
        let mut queue = open_queue(device, 8);
        let mut busy = vec![None; OWN as usize];
        let mut done = Vec::new();
        while !stop.load(SeqCst) || queue.in_flight() > 0 {
            while queue.in_flight() < 12 && !stop.load(SeqCst) {
                let block = self.rng.below(OWN);
                if busy[block as usize].is_some() {
                    continue;
                }
                let offset = self.first_sector(block) * SECTOR as u64;
                self.sequence += 1;
                if self.rng.chance(60) {
                    let bytes = sectors(self.first_sector(block), self.number as u32, self.sequence);
                    let segment = Segment::whole(Arc::new(AlignedBuf::from_slice(&bytes)));
                    let op = Op::Write { offset, segments: [segment].into_iter().collect() };
                    queue.submit(Request { token: block, op });
                    busy[block as usize] = Some(self.sequence);
                } else {
                    queue.submit(read_request(block, offset, BLOCK as usize * SECTOR));
                    busy[block as usize] = Some(0);
                }
            }
            if self.rng.chance(10) {
                queue.submit(Request { token: u64::MAX, op: Op::Flush });
            }
            queue.harvest(true, &mut done).unwrap();
            for done in done.drain(..) {
                done.result.unwrap();
                match &done.op {
                    Op::Write { .. } => {
                        self.newest[done.token as usize] = busy[done.token as usize].take().unwrap();
                    }
                    Op::Read { buf, .. } => {
                        busy[done.token as usize] = None;
                        self.check(done.token, buf);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Returns the stamp of the first sector.
fn seen_stamp(bytes: &[u8], first: u64) -> Option<Stamp> {
    match testkit::sector::identify(&bytes[..SECTOR], FILE, first).unwrap() {
        Seen::Zero => None,
        Seen::Data(stamp) => Some(stamp),
    }
}

/// Restarts the server at random, in the middle of requests and between them, until the time is
/// over.
fn disturb(server: &FakeServer, seed: u64, stop: &AtomicBool) -> u64 {
    let mut rng = Rng::new(seed, 99);
    let restarts = Arc::new(AtomicU64::new(0));
    let end = std::time::Instant::now() + settings::seconds(4.0);
    while std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(rng.log_uniform(60)));
        restarts.fetch_add(1, SeqCst);
        match rng.below(4) {
            0 => server.restart(),
            1 => {
                server.down();
                std::thread::sleep(Duration::from_millis(rng.log_uniform(100)));
                server.up();
            }
            _ => {
                let mut left = rng.below(50);
                server.rule(move |_| {
                    left = left.wrapping_sub(1);
                    if left == 0 { Reply::Restart } else { Reply::Answer }
                });
            }
        }
    }
    server.rule(|_| Reply::Answer);
    stop.store(true, SeqCst);
    restarts.load(SeqCst)
}

#[test]
fn writers_lose_nothing_when_the_server_restarts() {
    let seed = settings::seed("restarts");
    for options in ["&connections=1", "&connections=3", "&connections=3&retain=65536"] {
        let (server, device) = served(&format!("{options}&reconnect=60"));
        let stop = AtomicBool::new(false);
        let mut writers: Vec<_> = (0..WRITERS).map(|number| Writer::new(number, seed)).collect();
        let restarts = std::thread::scope(|scope| {
            for writer in &mut writers {
                let (device, stop) = (&device, &stop);
                scope.spawn(move || {
                    if writer.number % 2 == 0 {
                        writer.calls(&**device, stop);
                    } else {
                        writer.queued(device, stop);
                    }
                });
            }
            disturb(&server, seed, &stop)
        });
        device.flush().unwrap();
        let writes: u64 = writers.iter().map(|writer| writer.sequence).sum();
        eprintln!("{options}: {restarts} restarts, {writes} writes and reads");
        for writer in &writers {
            for block in 0..OWN {
                let offset = writer.first_sector(block) as usize * SECTOR;
                server.disk(|disk| {
                    disk.lose_power();
                    writer.check(block, &disk.durable()[offset..offset + BLOCK as usize * SECTOR]);
                });
            }
        }
    }
}
