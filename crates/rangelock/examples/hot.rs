//! scratch
use rangelock::*;
use std::hint::black_box;
use std::time::Instant;
fn best(name: &str, mut f: impl FnMut(u64)) {
    let mut b = f64::MAX;
    for _ in 0..300 {
        let t = Instant::now();
        let n = 10_000u64;
        for i in 0..n {
            f(i)
        }
        b = b.min(t.elapsed().as_nanos() as f64 / n as f64);
    }
    println!("{name} {b:.1}");
}
fn main() {
    let lock = RangeLock::new();
    best("one", |i| drop(black_box(lock.exclusive(ByteRange::new(i * 4096, i * 4096 + 4096)))));
    let many: Vec<_> = (0..32).map(|i| lock.shared(ByteRange::new(i, i + 1))).collect();
    drop(many);
    best("spread", |i| drop(black_box(lock.exclusive(ByteRange::new(i * 4096, i * 4096 + 4096)))));
    best("spread same", |_| drop(black_box(lock.exclusive(ByteRange::new(0, 4096)))));
    let many: Vec<_> = (0..2048).map(|i| lock.shared(ByteRange::new(i << 16, (i << 16) + 4096))).collect();
    best("among 2048 apart", |i| {
        drop(black_box(lock.exclusive(ByteRange::new((i << 16) + 8192, (i << 16) + 8192 + 4096))))
    });
    drop(many);
    let many: Vec<_> = (0..2048).map(|i| lock.shared(ByteRange::new(i * 2, (i * 2) + 1))).collect();
    best("among 2048 dense", |i| {
        let i = i % 2048;
        drop(black_box(lock.exclusive(ByteRange::new(i * 2 + 1, i * 2 + 2))))
    });
    drop(many);
    let m = std::sync::Mutex::new(0);
    best("mutex", |_| drop(black_box(m.lock())));
    let m = parking_lot::Mutex::new(0);
    best("pl mutex", |_| drop(black_box(m.lock())));
    let m = parking_lot::RwLock::new(0);
    best("pl rwlock read", |_| drop(black_box(m.read())));
}
