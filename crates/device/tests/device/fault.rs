//! Tests of `FaultDevice`: which calls fail, and which data they leave.

use super::{pattern, read, write};
use parext4_device::{CallInfo, CallKind, Device, FaultDevice, FaultKind, FaultPlan, MemDevice};
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;

const EIO: i32 = 5;

fn device(plan: FaultPlan) -> FaultDevice {
    FaultDevice::new(Arc::new(MemDevice::new(1 << 20)), plan)
}

/// Makes one call of each kind, and returns which of them succeed.
fn calls(device: &dyn Device) -> [bool; 4] {
    [
        read(device, 0, 512).is_ok(),
        write(device, 512, &[1; 512]).is_ok(),
        device.flush().is_ok(),
        device.discard(1024, 512).is_ok(),
    ]
}

#[test]
fn the_nth_call_fails_and_only_it() {
    for n in 1..=8 {
        let device = device(FaultPlan::at(n));
        let results = [calls(&device), calls(&device)].concat();
        let failed: Vec<usize> = (0..8).filter(|&index| !results[index]).collect();
        assert_eq!(failed, [n as usize - 1]);
        assert_eq!(device.calls(), 8);
        assert_eq!(device.failed().unwrap().number, n);
    }
}

#[test]
fn kinds_are_counted_apart() {
    let results = |kind| {
        let device = device(FaultPlan::at(1).kind(kind));
        calls(&device)
    };
    assert_eq!(results(FaultKind::Reads), [false, true, true, true]);
    assert_eq!(results(FaultKind::Writes), [true, false, true, true]);
    assert_eq!(results(FaultKind::Flushes), [true, true, false, true]);
    assert_eq!(results(FaultKind::Discards), [true, true, true, false]);
    let device = device(FaultPlan::default().kind(FaultKind::Writes));
    assert_eq!(calls(&device), [true; 4]);
    assert_eq!((device.calls(), device.failed()), (2, None));
}

#[test]
fn a_sticky_fault_lasts_until_disarmed() {
    let device = device(FaultPlan::at(2).sticky(true));
    assert_eq!(calls(&device), [true, false, false, false]);
    assert_eq!(calls(&device), [false; 4]);
    let failed = CallInfo { number: 2, kind: CallKind::Write, offset: 512, len: 512, device: 0 };
    assert_eq!(device.failed(), Some(failed));
    device.disarm();
    assert_eq!(calls(&device), [true; 4]);
    assert_eq!((device.calls(), device.failed()), (12, Some(failed)));
    device.arm(FaultPlan::at(1));
    assert_eq!(device.failed(), None);
    assert_eq!(device.flush().unwrap_err().raw_os_error(), Some(EIO));
}

#[test]
fn a_torn_write_leaves_its_first_half() {
    let device = device(FaultPlan::at(1).torn(true));
    let bytes = pattern(7, 5 * 512);
    let (head, tail) = bytes.split_at(700);
    let error = device.write_at(4096, &[IoSlice::new(head), IoSlice::new(tail)]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(EIO));
    let after = read(&device, 4096, 5 * 512).unwrap();
    assert_eq!(after[..1024], bytes[..1024]);
    assert!(after[1024..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_torn_read_ends_after_its_first_half() {
    let device = device(FaultPlan::default());
    let bytes = pattern(7, 5 * 512);
    write(&device, 4096, &bytes).unwrap();
    device.arm(FaultPlan::at(1).torn(true));
    let (mut head, mut tail) = ([9; 700], [9; 5 * 512 - 700]);
    let mut bufs = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
    let error = device.read_at(4096, &mut bufs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(head[..], bytes[..700]);
    assert_eq!(tail[..324], bytes[700..1024]);
    assert!(tail[324..].iter().all(|&byte| byte == 9));
}

#[test]
fn a_failed_write_that_is_not_torn_leaves_nothing() {
    let device = device(FaultPlan::at(1));
    assert!(write(&device, 0, &[1; 4096]).is_err());
    assert!(read(&device, 0, 4096).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn a_plan_counts_the_calls_of_two_devices_and_goes_on_to_fail_those_of_one() {
    let memory = || Arc::new(MemDevice::new(4096));
    let first = FaultDevice::new(memory(), FaultPlan::at(2).kind(FaultKind::Flushes).sticky(true));
    let second = first.beside(memory());
    first.flush().unwrap();
    second.flush().unwrap_err();
    assert_eq!((first.calls(), first.failed().map(|call| call.device)), (2, Some(1)));
    first.flush().unwrap();
    second.flush().unwrap_err();
    assert_eq!(second.calls(), 4);
}
