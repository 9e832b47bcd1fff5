//! Arbitrary pointers: operations return errors, and neither panic nor hang.

use parext4::{MemDevice, Volume};
use testkit::image::Image;
use testkit::rng::Rng;
use testkit::volume::{DirectFiles as _, assert_no_findings, exercise_damaged, findings};

/// Runs every operation on the file, and ignores the results.
fn exercise(volume: &Volume) {
    let Ok(file) = volume.direct_file("/file") else { return };
    let mut bytes = vec![0; 16384];
    let _ = file.fiemap(0..u64::MAX);
    let mut at = 0;
    while let Ok(Some(data)) = file.data_range(at) {
        assert!(data.end > at, "the search goes on");
        at = data.end;
    }
    for n in 0..40_u64 {
        let offset =
            [n * 1024, 12 + n * 8192, 268 << 10, (65804 << 10) + n * 300_000][(n % 4) as usize] / 512 * 512;
        let _ = file.read_at(&mut bytes, offset);
        let _ = file.write_all_at(&bytes[..4096], offset);
        let _ = file.punch_hole(offset + 1024..offset + 1024 + 100_000);
    }
    let _ = file.append(&bytes);
    let _ = file.buffered().and_then(|buffered| buffered.write_all_at(&bytes, 70_000_000));
    let _ = volume.sync();
    let _ = file.set_len(300_000);
    drop(file);
    let _ = volume.remove_file("/file");
    let _ = volume.sync();
}

fn image() -> Option<(MemDevice, Vec<usize>)> {
    let image = Image::mke2fs(8, &["-b", "1024", "-N", "64", "-O", "^extent,^64bit,^metadata_csum"])?;
    let volume = image.open();
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 400 << 10], 0).unwrap();
    for n in 0..4 {
        file.write_all_at(&[2; 4096], (65804 + n * 65536) << 10).unwrap();
    }
    drop(file);
    volume.close().unwrap();
    // The pointer blocks: (IND), (DIND) and (TIND) in the list of debugfs.
    let stat = image.debugfs("stat /file");
    let blocks =
        stat.split("IND):").skip(1).filter_map(|rest| rest.split([',', '\n']).next()?.trim().parse().ok());
    let blocks: Vec<usize> = blocks.collect();
    let inode = image.debugfs("imap /file");
    let place = |key: &str| {
        let rest = inode.split_once(key)?.1.trim_start();
        let digits: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
        Some(digits)
    };
    let table: usize = place("located at block")?.parse().unwrap();
    let offset = usize::from_str_radix(&place("offset 0x")?, 16).unwrap();
    let mut places: Vec<usize> = blocks.iter().map(|block| block * 1024).collect();
    assert!(places.len() >= 8, "{stat}");
    places.push(table * 1024 + offset + 40);
    Some((MemDevice::from_bytes(std::fs::read(image.path()).unwrap()), places))
}

#[test]
fn arbitrary_pointers_cause_no_panic() {
    let Some((sound, places)) = image() else { return };
    let pointer = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    for seed in 1..=120 {
        let mut rng = Rng::new(seed, 0);
        let mut bytes = sound.snapshot();
        for _ in 0..=rng.below(3) {
            let place = places[usize::try_from(rng.below(places.len() as u64)).unwrap()];
            let slots = if place == *places.last().unwrap() { 15 } else { 256 };
            let index = if rng.chance(60) { rng.below(4).min(slots) } else { rng.below(slots) };
            let at = place + 4 * usize::try_from(index).unwrap();
            let other = places[usize::try_from(rng.below(places.len() as u64 - 1)).unwrap()];
            let value = match rng.below(6) {
                0 => u32::try_from(rng.below(1 << 32)).unwrap(),
                1 => u32::try_from(rng.below(100)).unwrap(),
                2 => u32::try_from(rng.below(8192)).unwrap(),
                3 => pointer(&bytes, other),
                // A pointer block, of this file, so that there are loops.
                _ => u32::try_from(other / 1024).unwrap(),
            };
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        exercise_damaged(&bytes, exercise);
    }
}

/// Two pointers of the double indirect block lead to one indirect block, whose blocks are then
/// mapped twice.
#[test]
fn the_check_finds_an_indirect_block_that_is_mapped_twice() {
    let Some((sound, places)) = image() else { return };
    assert_no_findings(&sound, "sound pointers");
    let mut bytes = sound.snapshot().clone();
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let first = places.iter().copied().find(|&place| {
        let pointers = [place, place + 4].map(|at| word(&bytes, at) as usize * 1024);
        pointers.iter().all(|pointer| places.contains(pointer))
    });
    let first = first.expect("a block of pointers to two indirect blocks");
    bytes.copy_within(first..first + 4, first + 4);
    let block = word(&bytes, first);
    let found = findings(&MemDevice::from_bytes(bytes));
    let expected = format!("is used several times, by inode 12 (block {block}) [0x011002 PR_1B_DUP_BLOCK]");
    assert!(found.iter().any(|line| line.contains(&expected)), "{found:?}");
}
