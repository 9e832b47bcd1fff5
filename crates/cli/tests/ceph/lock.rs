//! One owner: the exclusive lock, takeover, and the fence.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use parext4::device::Sharing;
use parext4::device::{AlignedBuf, Op, Request, Segment, open_queue};
use parext4::{MkfsOptions, mkfs};
use parext4_storage::open_volume_device;
use testkit::command::run;
use testkit::fuse_mount::errors;
use testkit::poll::until;

use super::*;

const SIZE: u64 = 16 << 20;
const BLOCK: usize = 4096;

#[test]
fn a_second_writer_is_refused_and_told_of_the_owner() {
    let Some(cluster) = running() else { return };
    let device = cluster.create("owned", SIZE);
    let owner = device.lock_owner().unwrap().unwrap();
    assert!(owner.alive && owner.name.starts_with("client."), "{owner:?}");
    let reader = cluster.reader("owned");
    assert_eq!(reader.lock_owner().unwrap().as_ref(), Some(&owner));
    let error = cluster.open("owned").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    assert!(error.to_string().contains(&format!("in use: {}", owner.name)), "{error}");
    write(&*device, 0, &[1; BLOCK]).unwrap();
    drop(device);
    assert_eq!(reader.lock_owner().unwrap(), None);
    let next = cluster.open("owned").unwrap();
    assert!(!next.has_fenced(), "the lock was free");
    assert_ne!(next.lock_owner().unwrap().unwrap().name, owner.name);
}

#[test]
fn a_queue_keeps_the_lock() {
    let Some(cluster) = running() else { return };
    let device = cluster.create("queued", SIZE);
    let queue = open_queue(&device, 4);
    drop(device);
    assert_eq!(cluster.open("queued").unwrap_err().kind(), ErrorKind::ResourceBusy);
    drop(queue);
    cluster.open("queued").unwrap();
}

/// A client of librbd that writes to an image, in another process. Killed when dropped.
struct Client(Child);

impl Client {
    fn start(cluster: &Cluster, image: &str) -> Self {
        let mut bench = Command::new("rbd");
        bench.arg("--conf").arg(cluster.conf()).args([
            "bench",
            image,
            "--io-type",
            "write",
            "--io-total",
            "1T",
        ]);
        Self(bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes blocks of `byte` all over the device, eight at a time, until one fails. Returns its
/// error.
fn write_until_error(device: &Arc<dyn Device>, byte: u8) -> io::Error {
    let mut queue = open_queue(device, 8);
    let data = Arc::new(AlignedBuf::from_slice(&[byte; BLOCK]));
    let (mut next, mut done) = (0, Vec::new());
    loop {
        while queue.in_flight() < 8 {
            let offset = next % (SIZE / BLOCK as u64) * BLOCK as u64;
            let op =
                Op::Write { offset, segments: [Segment::whole(Arc::clone(&data))].into_iter().collect() };
            queue.submit(Request { token: next, op });
            next += 1;
        }
        queue.harvest(true, &mut done).unwrap();
        for done in done.drain(..) {
            if let Err(error) = done.result {
                return error;
            }
        }
    }
}

#[test]
fn no_write_of_a_fenced_owner_lands_after_the_takeover() {
    let Some(cluster) = running() else { return };
    let fenced = "fenced: another client took over the image; this client is on the cluster's blocklist";
    let mut owner = cluster.create("fenced", SIZE);
    for round in [1, 2] {
        let name = owner.lock_owner().unwrap().unwrap().name;
        let old = Arc::clone(&owner);
        let writer = std::thread::spawn(move || write_until_error(&old, 0xee));
        std::thread::sleep(Duration::from_millis(200));
        let takeover = DeviceOptions::new().takeover(true);
        let wrong = takeover.clone().takeover_from("client.0 at nowhere".to_owned());
        let refused = open_device(cluster.tenant("fenced"), &wrong).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
        let new = open_device(cluster.tenant("fenced"), &takeover.takeover_from(name)).unwrap();
        assert!(new.has_fenced());
        for block in 0..SIZE / (1 << 20) {
            write(&*new, block << 20, &[round; 1 << 20]).unwrap();
        }
        let error = writer.join().unwrap();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::PermissionDenied, fenced));
        let results = [
            write(&*owner, 0, &[0xee; BLOCK]),
            owner.flush(),
            owner.discard(0, 1 << 20),
            read(&*owner, 0, BLOCK).map(drop),
        ];
        for result in results {
            assert_eq!(result.unwrap_err().to_string(), fenced);
        }
        drop(owner);
        for block in 0..SIZE / (1 << 20) {
            let bytes = read(&*new, block << 20, 1 << 20).unwrap();
            assert!(bytes.iter().all(|&byte| byte == round), "a write landed after the takeover");
        }
        owner = new;
    }
}

#[test]
fn a_living_client_of_librbd_does_not_get_the_lock() {
    let Some(cluster) = running() else { return };
    let device = cluster.create("asked", SIZE);
    let name = device.lock_owner().unwrap().unwrap().name;
    // The client asks for the lock before its first write, which takes it less than a second, and
    // then fails or asks again.
    let client = Client::start(&cluster, "asked");
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(device.lock_owner().unwrap().unwrap().name, name);
        write(&*device, 0, &[1; BLOCK]).unwrap();
    }
    drop(client);
    device.flush().unwrap();
}

#[test]
fn the_lock_of_a_dead_client_is_broken_and_the_client_fenced() {
    let Some(cluster) = running() else { return };
    drop(cluster.create("dead", SIZE));
    let reader = cluster.reader("dead");
    let client = Client::start(&cluster, "dead");
    assert!(until(|| reader.lock_owner().unwrap().is_some()), "the client never locked the image");
    let owner = reader.lock_owner().unwrap().unwrap();
    // librbd would hand the lock over. It must not be asked.
    let error = cluster.open("dead").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    assert_eq!(reader.lock_owner().unwrap(), Some(owner.clone()));
    drop(client);
    assert!(until(|| !reader.lock_owner().unwrap().unwrap().alive), "the client counts as alive");
    // The client could be about to show that it lives.
    let error = cluster.open("dead").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("the cluster does not hear from it"), "{error}");
    let device = open_volume_device(cluster.tenant("dead"), &DeviceOptions::new()).unwrap();
    assert!(device.has_fenced());
    assert_ne!(device.lock_owner().unwrap().unwrap().name, owner.name);
    let address = owner.name.split(' ').next_back().unwrap();
    assert!(cluster.ceph(&["osd", "blocklist", "ls"]).unwrap().contains(address));
}

#[test]
fn mkfs_fences_no_client_of_a_volume_that_it_refuses_to_overwrite() {
    let Some(cluster) = running() else { return };
    mkfs(&*cluster.create("kept", SIZE), &MkfsOptions::new()).unwrap();
    let id = cluster.rbd(&["info", "kept", "--format", "json"]).unwrap();
    let (_, id) = id.split_once("\"id\":\"").unwrap();
    let header = format!("rbd_header.{}", id.split_once('"').unwrap().0);
    // The lock of a client of librbd whose watch has expired.
    let mut lock = Command::new("rados");
    lock.arg("--conf").arg(cluster.conf()).args(["--pool", "rbd", "lock", "get", &header, "rbd_lock"]);
    lock.args(["--lock-cookie", "auto 1", "--lock-tag", "internal"]);
    assert!(lock.status().unwrap().success());
    let reader = cluster.reader("kept");
    let owner = reader.lock_owner().unwrap().unwrap();
    assert!(!owner.alive);
    let refused = errors(&run(&["mkfs", &cluster.tenant("kept")]));
    assert!(refused.contains("use --force to overwrite it"), "{refused}");
    assert_eq!(reader.lock_owner().unwrap(), Some(owner));
}

#[test]
fn an_image_whose_configuration_turns_the_cache_on_is_refused() {
    let Some(cluster) = running() else { return };
    drop(cluster.create("cached", SIZE));
    let set = |name, value| cluster.rbd(&["config", "image", "set", "rbd/cached", name, value]).unwrap();
    set("rbd_cache", "true");
    set("rbd_cache_policy", "writeback");
    for read_only in [false, true] {
        let options = DeviceOptions::new().read_only(read_only);
        let error = open_device(cluster.tenant("cached"), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("`rbd config image set rbd/cached rbd_cache false`"), "{error}");
    }
    set("rbd_cache", "false");
    let reader = cluster.reader("cached");
    assert_eq!(read(&*reader, 0, BLOCK).unwrap(), [0; BLOCK]);
    write(&*cluster.open("cached").unwrap(), 0, &[1; BLOCK]).unwrap();
    assert_eq!(read(&*reader, 0, BLOCK).unwrap(), [1; BLOCK], "what another client wrote meanwhile");
}

#[test]
fn a_user_of_one_namespace_has_all_capabilities_that_an_image_needs() {
    let Some(cluster) = running() else { return };
    cluster.rbd(&["namespace", "create", "rbd/apart"]).unwrap();
    let caps = ["mon", "profile rbd", "osd", "profile rbd pool=rbd namespace=apart"];
    let key = cluster.ceph(&[&["auth", "get-or-create", "client.apart"][..], &caps].concat()).unwrap();
    let keyring = cluster.dir().join("apart.keyring");
    std::fs::write(&keyring, key).unwrap();
    let url = cluster.url_of_user("apart/disk", "apart");
    let url = format!("{url}&keyring={}", keyring.display());
    let first = open_device(&url, &DeviceOptions::new().create(SIZE)).unwrap();
    let takeover = DeviceOptions::new().takeover(true);
    let second = open_device(&url, &takeover).unwrap();
    assert!(second.has_fenced() && write(&*first, 0, &[1; BLOCK]).is_err());
}

#[test]
fn a_standby_without_the_right_to_fence_says_so_when_it_starts() {
    let Some(cluster) = running() else { return };
    let caps = ["mon", "allow r", "osd", "profile rbd"];
    let key = cluster.ceph(&[&["auth", "get-or-create", "client.tame"][..], &caps].concat()).unwrap();
    let keyring = cluster.dir().join("tame.keyring");
    std::fs::write(&keyring, key).unwrap();
    let owner = cluster.create("untamed", 64 << 20);
    mkfs(&*owner, &MkfsOptions::new().features("mmp").unwrap()).unwrap();
    cluster.reader("untamed").check_fence().unwrap();
    let url = format!("{}&keyring={}", cluster.url_of_user("untamed", "tame"), keyring.display());
    let tame = open_device(&url, &DeviceOptions::new().read_only(true)).unwrap();
    let error = tame.check_fence().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("`profile rbd`"), "{error}");
    assert!(!cluster.ceph(&["osd", "blocklist", "ls"]).unwrap().contains("none"));

    let dir = tempfile::tempdir().unwrap();
    let mut standby = Command::new(env!("CARGO_BIN_EXE_parext4"));
    standby.args(["mount", "--foreground", "--standby", &url]).arg(dir.path()).stderr(Stdio::piped());
    let mut standby = standby.spawn().unwrap();
    let mut lines = BufReader::new(standby.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    standby.kill().unwrap();
    standby.wait().unwrap();
    assert!(first.contains("only a volume that its owner has closed can be taken over"), "{first}");
    assert_eq!(first.matches("rbd:").count(), 1, "{first}");
}

#[test]
fn an_image_without_a_lock_is_not_fenced() {
    let Some(cluster) = running() else { return };
    cluster.rbd(&["create", "lockless", "--size", "16M", "--image-feature", "layering"]).unwrap();
    let device = cluster.open("lockless").unwrap();
    assert_eq!((device.sharing(), device.lock_owner().unwrap()), (Sharing::Unfenced, None));
    cluster.open("lockless").unwrap();
}

#[test]
fn a_lock_made_by_hand_is_respected() {
    let Some(cluster) = running() else { return };
    drop(cluster.create("by-hand", SIZE));
    cluster.rbd(&["lock", "add", "by-hand", "maintenance"]).unwrap();
    let options = DeviceOptions::new().takeover(true);
    let error = open_device(cluster.tenant("by-hand"), &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("locked by hand by client."), "{error}");
}
