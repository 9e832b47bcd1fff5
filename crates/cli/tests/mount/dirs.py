"""Lists a directory as a program does whose off_t has 32 bits: with the positions that the kernel returns, which must be below 2^31.

Prints the number of positions in the server's table. Arguments: the directory, and "remove" to remove each entry that is listed.
"""

import ctypes
import os
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
path = sys.argv[1].encode()
fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def read(size):
    """Returns the names and positions of the entries of one call of getdents64(2), with a buffer of `size` bytes."""
    buffer = ctypes.create_string_buffer(size)
    count = libc.getdents64(fd, buffer, size)
    if count < 0:
        sys.exit(f"getdents64: {os.strerror(ctypes.get_errno())}")
    entries, at = [], 0
    while at < count:
        _, position, length, _ = struct.unpack_from("<QqHB", buffer, at)
        name = buffer.raw[at + 19 : at + length].split(b"\0")[0]
        entries.append((name, position))
        at += length
    return entries


def whole(size):
    os.lseek(fd, 0, os.SEEK_SET)
    entries = []
    while part := read(size):
        entries += part
    return entries


if sys.argv[2:] == ["remove"]:
    while part := read(150):
        for name, _ in part:
            if name not in (b".", b".."):
                os.unlink(path + b"/" + name)
    os.rmdir(path)
    sys.exit()

entries = whole(1 << 16)
names = sorted(name for name, _ in entries)
expected = sorted(os.listdir(path) + [b".", b".."])
assert names == expected, "each name is listed once"
positions = [position for _, position in entries]
assert max(positions) < 1 << 31, f"a position of {max(positions):#x}"
assert len(set(positions)) == len(positions), "each entry has a position of its own"
assert whole(100) == entries, "calls with small buffers"
for (name, position), (following, _) in zip(entries, entries[1:]):
    os.lseek(fd, position, os.SEEK_SET)
    assert read(1000)[0][0] == following, f"what follows {name}"
os.lseek(fd, positions[-1], os.SEEK_SET)
assert read(1000) == [], "the end"
print(sum(position >= 0x7FF00000 for position in positions))
