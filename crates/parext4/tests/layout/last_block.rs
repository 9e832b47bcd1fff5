//! Files that reach to the last block that a file can have, and files whose size says that they go
//! on after it.

use std::sync::Arc;

use parext4::{AlignedBuf, Device, DirectFile, FileSize, IoFlags, IoRequest, MemDevice, Volume};
use parext4_format::BlockSize;
use parext4_format::indirect::Shape as IndirectShape;
use testkit::Image;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};

/// Returns each shape with the number of blocks that its files can have.
fn shapes() -> impl Iterator<Item = (Shape, u64)> {
    [1024, 4096, 65536].into_iter().flat_map(|block_size| {
        let shape = Shape::new(64, block_size, true);
        let indirect = IndirectShape::new(BlockSize::from_bits(block_size.ilog2()).unwrap());
        [(shape, u64::from(u32::MAX)), (shape.without_extents(), indirect.max_blocks(true))]
    })
}

fn open(device: &Arc<MemDevice>) -> Volume {
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &untimed()).unwrap()
}

/// Returns a volume with `/file`, which has data in its first block and in the last one that it can
/// have.
fn with_last_block((shape, blocks): (Shape, u64)) -> (Arc<MemDevice>, Volume, DirectFile, u64) {
    let device = Arc::new(shape.make());
    let volume = open(&device);
    let (block, end) = (u64::from(shape.block_size), blocks * u64::from(shape.block_size));
    let file = volume.create_direct("/file").unwrap();
    let bytes = vec![7; shape.block_size as usize];
    file.write_all_at(&bytes, 0).unwrap();
    file.write_all_at(&bytes, end - block).unwrap();
    (device, volume, file, end)
}

fn read_by_queue(volume: &Volume, file: &DirectFile, len: usize, offset: u64) -> parext4::Result<u64> {
    let (mut queue, mut done) = (volume.io_queue(1), Vec::new());
    queue.submit(file, IoRequest::Read { buf: AlignedBuf::zeroed(len), len, offset }, 0, IoFlags::new());
    while done.is_empty() {
        queue.harvest(&mut done)?;
    }
    done.remove(0).result
}

#[test]
fn a_file_with_the_last_block_that_it_can_have_is_read_mapped_and_punched() {
    for shape in shapes() {
        let (device, volume, file, end) = with_last_block(shape);
        let block = u64::from(shape.0.block_size);
        assert_eq!(file.size(), end, "{shape:?}");
        assert!(file.write_all_at(&[7; 4096], end).is_err() && file.append(&[7; 4096]).is_err());
        assert_eq!(file.seek_data(block).unwrap(), end - block);
        assert_eq!(file.seek_hole(end - block).unwrap(), end);
        let extents = file.fiemap(0..u64::MAX).unwrap();
        assert!(extents.len() == 2 && extents[1].last && extents[1].offset == end - block, "{extents:?}");
        let mut bytes = vec![0; 2 * block as usize];
        assert_eq!(file.read_at(&mut bytes, end - block).unwrap() as u64, block);
        assert!(bytes[..block as usize].iter().all(|&byte| byte == 7));
        assert_eq!(read_by_queue(&volume, &file, 2 * block as usize, end - block).unwrap() as u64, block);
        for offset in [end, 1 << 50] {
            assert_eq!(file.read_at(&mut bytes, offset).unwrap(), 0);
            assert_eq!(read_by_queue(&volume, &file, 2 * block as usize, offset).unwrap(), 0);
        }
        let buffered = file.buffered().unwrap();
        buffered.write_all_at(b"x", end - 1).unwrap();
        assert!(buffered.write_all_at(b"y", end).is_err());
        assert_eq!(buffered.read_at(&mut bytes, end - 2).unwrap(), 2);
        assert_eq!(bytes[..2], *b"\x07x");
        file.punch_hole(end - block..end - block + block).unwrap();
        assert!(file.seek_data(block).is_err(), "{shape:?}: nothing is left after the first block");
        drop((file, buffered));
        volume.remove_file("/file").unwrap();
        volume.close().unwrap();
        assert_clean(&device, "after the last block was used");
    }
}

/// Runs every operation on the file, near the end that it can have and past it, and ignores the
/// results.
fn exercise(volume: &Volume, file: &DirectFile, end: u64, block: u64) {
    let mut bytes = vec![0; 3 * block as usize];
    for offset in [0, end - 2 * block, end - block, end, end + block, 1 << 50, (1 << 63) - block] {
        let _ = file.read_at(&mut bytes, offset);
        let _ = read_by_queue(volume, file, bytes.len(), offset);
        let _ = file.fiemap(offset..u64::MAX);
        let _ = file.data_range(offset);
        let _ = file.seek_hole(offset);
        let _ = file.device_range(offset);
        if let Ok(buffered) = file.buffered() {
            let _ = buffered.read_at(&mut bytes, offset + 1);
            let _ = buffered.write_all_at(&bytes, offset + 1);
        }
        let _ = file.write_all_at(&bytes, offset);
        let _ = file.zero_range(offset..offset + block, FileSize::Keep);
        let _ = file.punch_hole(offset..offset + block);
        let _ = file.punch_hole(offset..offset + end.saturating_sub(offset));
        let _ = file.insert_range(offset..offset + block);
        let _ = file.collapse_range(offset..offset + block);
        let _ = file.allocate(offset..offset + 2 * block, FileSize::Keep);
    }
    let _ = file.append(&bytes);
    let _ = file.sync_all();
    let _ = file.set_len(end);
    let _ = file.set_len(0);
}

#[test]
fn a_size_past_the_last_block_that_a_file_can_have_overflows_nothing() {
    for shape in shapes() {
        let (device, volume, file, end) = with_last_block(shape);
        drop(file);
        volume.close().unwrap();
        let image = Image::of(&device);
        for size in [end + 1, 1 << 48, (1 << 63) - 1] {
            image.debugfs_write(&format!("set_inode_field /file size {size}"));
            let device = Arc::new(image.load());
            let volume = open(&device);
            if let Ok(file) = volume.direct_file("/file") {
                exercise(&volume, &file, end, shape.0.block_size.into());
            }
            let _ = volume.remove_file("/file");
            let _ = volume.close();
        }
    }
}
