//! The client against real servers, and against a server in this process that answers as a test
//! wants.

mod flush;
mod guard;
mod hostile;
mod limits;
mod loss;
mod negotiation;
mod programs;
mod slow;
mod stress;
mod tls;

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use parext4_device::{AlignedBuf, Device, DeviceOptions, Done, Op, Queue, Request, Segment, open_queue};
use parext4_nbd::{NbdDevice, NbdUrl};
use testkit::device_contract::{QUEUE_CHECKS, refuses_bad_requests, threads_do_not_disturb_each_other};
use testkit::nbd::{FakeServer, Offer, flags};

const SIZE: u64 = 4 << 20;

fn open_url(url: &str) -> io::Result<Arc<dyn Device>> {
    open_with(url, &DeviceOptions::new())
}

fn open_with(url: &str, options: &DeviceOptions) -> io::Result<Arc<dyn Device>> {
    Ok(Arc::new(NbdDevice::open(&NbdUrl::parse(url)?, options)?))
}

/// Starts a server with all features, and opens its export with further options of the URL.
fn served(options: &str) -> (FakeServer, Arc<dyn Device>) {
    served_with(Offer::default(), options)
}

fn served_with(offer: Offer, options: &str) -> (FakeServer, Arc<dyn Device>) {
    let server = FakeServer::start(SIZE, offer);
    let device = open_url(&server.url(options)).unwrap();
    (server, device)
}

fn write(device: &dyn Device, offset: u64, byte: u8, len: usize) -> io::Result<()> {
    device.write_at(offset, &[IoSlice::new(&vec![byte; len])])
}

fn read(device: &dyn Device, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0xee; len];
    device.read_at(offset, &mut [IoSliceMut::new(&mut bytes)])?;
    Ok(bytes)
}

fn write_request(token: u64, offset: u64, byte: u8, len: usize) -> Request {
    let segment = Segment::whole(Arc::new(AlignedBuf::from_slice(&vec![byte; len])));
    Request { token, op: Op::Write { offset, segments: [segment].into_iter().collect() } }
}

fn read_request(token: u64, offset: u64, len: usize) -> Request {
    Request { token, op: Op::Read { offset, buf: AlignedBuf::zeroed(len), len } }
}

/// Harvests until nothing is in flight, and returns the completions sorted by token.
fn finish(queue: &mut dyn Queue) -> Vec<Done> {
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.harvest(true, &mut done).unwrap();
    }
    done.sort_by_key(|done| done.token);
    done
}

/// Servers whose clients take different paths: several chunks, simple replies, one connection,
/// requests in pieces, no flush.
fn offers() -> [Offer; 5] {
    let all = Offer::default();
    [
        all,
        Offer { structured: false, ..all },
        Offer { flags: all.flags & !flags::CAN_MULTI_CONN, ..all },
        Offer { sizes: Some((1, 4096, 12288)), ..all },
        Offer { flags: flags::HAS_FLAGS, ..all },
    ]
}

#[test]
fn queues_keep_their_contract() {
    for offer in offers() {
        for (_, check) in QUEUE_CHECKS {
            let (_server, device) = served_with(offer, "");
            assert!(format!("{:?}", open_queue(&device, 1)).starts_with("NbdQueue"));
            check(&device);
        }
    }
}

#[test]
fn devices_keep_their_contract() {
    for offer in offers() {
        let (_server, device) = served_with(offer, "");
        refuses_bad_requests(&*device);
        threads_do_not_disturb_each_other(&*device);
    }
}
