//! nbdkit and qemu-nbd, as they are, with filters, and through a relay that ends connections.

use super::*;
use std::io::ErrorKind;
use std::path::PathBuf;
use tempfile::TempDir;
use testkit::nbd::{Nbdkit, QemuNbd, Relay, Running, Server};
use testkit::rng::Rng;

/// Starts nbdkit with these arguments, where `IMAGE` stands for an image of `SIZE` bytes.
fn nbdkit(arguments: &str) -> Option<(TempDir, Running<Nbdkit>)> {
    let (dir, image) = image();
    let kit = Nbdkit::new(&arguments.replace("IMAGE", image.to_str().unwrap()));
    let running = kit.start(dir.path())?;
    Some((dir, running))
}

fn qemu_nbd(arguments: &str) -> Option<(TempDir, Running<QemuNbd>)> {
    let (dir, image) = image();
    let arguments = arguments.split_whitespace().map(str::to_owned).collect();
    let running = QemuNbd { image, arguments }.start(dir.path())?;
    Some((dir, running))
}

fn image() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
    (dir, image)
}

/// Writes, reads and discards at random, by calls and by a queue, and compares with a model.
fn exercise(device: &Arc<dyn Device>, seed: u64, steps: u64) {
    let mut rng = Rng::new(seed, 0);
    let mut model = vec![0; device.size() as usize];
    device.write_at(0, &[IoSlice::new(&model)]).unwrap();
    let sector = u64::from(device.sector_size());
    let sectors = device.size() / sector;
    let mut queue = open_queue(device, 8);
    for step in 0..steps {
        let len = rng.log_uniform(sectors / 8);
        let (offset, len) = (rng.below(sectors - len) * sector, (len * sector) as usize);
        let range = offset as usize..offset as usize + len;
        let byte = if rng.chance(20) { 0 } else { (step % 255) as u8 + 1 };
        match rng.below(10) {
            0..3 => write(&**device, offset, byte, len).unwrap(),
            3..5 => {
                queue.submit(write_request(step, offset, byte, len));
                queue.submit(Request { token: step, op: Op::Flush });
                finish(&mut *queue).into_iter().for_each(|done| done.result.unwrap());
            }
            5..7 => {
                queue.submit(read_request(step, offset, len));
                let done = finish(&mut *queue).pop().unwrap();
                let Op::Read { buf, .. } = &done.op else { panic!() };
                assert!(done.result.is_ok() && buf[..] == model[range], "seed {seed}, step {step}");
                continue;
            }
            7 => {
                device.flush().unwrap();
                continue;
            }
            8 => {
                device.discard(offset, len as u64).unwrap();
                // Discarded bytes may be old or zero, so they are written again.
                write(&**device, offset, byte, len).unwrap();
            }
            _ => {
                assert!(read(&**device, offset, len).unwrap() == model[range], "seed {seed}, step {step}");
                continue;
            }
        }
        model[range].fill(byte);
    }
    drop(queue);
    for (nth, expected) in model.chunks(64 << 10).enumerate() {
        let found = read(&**device, nth as u64 * (64 << 10), expected.len()).unwrap();
        assert!(found == expected, "seed {seed}, at the end");
    }
    device.flush().unwrap();
}

#[test]
fn nbdkit_serves() {
    let seed = testkit::settings::seed("nbdkit");
    for arguments in [
        "memory 4M",
        "file IMAGE",
        "--no-sr memory 4M",
        "--mask-handshake=0 memory 4M",
        "--filter=noparallel --filter=delay memory 4M rdelay=1ms wdelay=1ms",
        "--filter=blocksize-policy memory 4M blocksize-minimum=4k blocksize-maximum=64k blocksize-error-policy=error",
        "--filter=truncate memory 8M truncate=4M",
        "--filter=limit memory 4M limit=2",
        "--filter=multi-conn memory 4M multi-conn-mode=disable",
        "--filter=nozero memory 4M",
        "--filter=fua memory 4M fuamode=force",
        "--filter=cache file IMAGE cache=writeback",
    ] {
        let Some((_dir, server)) = nbdkit(arguments) else { return };
        eprintln!("nbdkit {arguments}");
        exercise(&open_url(&server.url("")).unwrap(), seed, 150);
    }
}

#[test]
fn qemu_nbd_serves() {
    let seed = testkit::settings::seed("qemu_nbd");
    for arguments in ["--cache=writeback --discard=unmap", "--cache=writethrough"] {
        let Some((_dir, server)) = qemu_nbd(arguments) else { return };
        exercise(&open_url(&server.url("")).unwrap(), seed, 300);
    }
}

#[test]
fn the_errors_of_nbdkit_are_results() {
    let Some((_dir, server)) =
        nbdkit("--filter=error memory 4M error=EIO error-pwrite-rate=100% error-pread-rate=0")
    else {
        return;
    };
    let device = open_url(&server.url("")).unwrap();
    read(&*device, 0, 4096).unwrap();
    let error = write(&*device, 0, 1, 4096).unwrap_err();
    assert!(error.to_string().contains("os error 5"), "{error}");
    read(&*device, 0, 4096).unwrap();
}

#[test]
fn servers_say_why_they_refuse() {
    let Some((_dir, server)) = nbdkit("-r memory 4M") else { return };
    assert_eq!(open_url(&server.url("")).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    let Some((_dir, server)) = qemu_nbd("--cache=writeback") else { return };
    let url = server.url("").replace("nbd+unix:///", "nbd+unix:///other");
    assert_eq!(open_url(&url).unwrap_err().kind(), ErrorKind::NotFound);
    let Some((_dir, server)) = nbdkit("--oldstyle memory 4M") else { return };
    let error = open_url(&server.url("")).unwrap_err();
    assert!(error.to_string().contains("old negotiation"), "{error}");
}

#[test]
fn a_killed_server_that_cached_writes_gets_them_again() {
    // The filter keeps writes in a temporary file until a flush. The file is lost with the process.
    let Some((dir, mut server)) = nbdkit("--filter=cache file IMAGE cache=writeback") else { return };
    let device = open_url(&server.url("&reconnect=30")).unwrap();
    for round in 0..8_u8 {
        write(&*device, 0, round + 1, 65536).unwrap();
        if round % 2 == 1 {
            device.flush().unwrap();
        }
        write(&*device, 1 << 20, round + 101, 65536).unwrap();
        server.restart();
        assert_eq!(read(&*device, 0, 65536).unwrap(), vec![round + 1; 65536]);
        assert_eq!(read(&*device, 1 << 20, 65536).unwrap(), vec![round + 101; 65536]);
    }
    device.flush().unwrap();
    server.kill();
    let image = std::fs::read(dir.path().join("image")).unwrap();
    assert_eq!(image[..65536], vec![8; 65536]);
    assert_eq!(image[1 << 20..][..65536], vec![108; 65536]);
}

#[test]
fn connections_that_end_anywhere_lose_nothing() {
    let seed = testkit::settings::seed("relay");
    let Some((_dir, server)) = nbdkit("file IMAGE") else { return };
    let relay = Relay::start(server.socket(), seed, 1 << 20);
    // No answer is longer than what the relay lets through at least.
    let options = DeviceOptions::new().len(512 << 10);
    let device = open_with(&relay.url("&reconnect=60&connections=2"), &options).unwrap();
    // Some seeds draw such long connections that one round ends only two.
    for round in 0.. {
        exercise(&device, seed.wrapping_add(round), 400);
        if relay.ended() > 10 {
            break;
        }
        assert!(round < 50, "only {} connections ended", relay.ended());
    }
    relay.calm();
}
