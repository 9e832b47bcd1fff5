"""Changes flags of open files, and races handles. Prints what a program sees, for a comparison with the kernel's ext4."""

import errno, fcntl, os, subprocess, sys, threading, time

directory = sys.argv[1]


def path(name):
    return os.path.join(directory, name)


def write(name, contents):
    with open(path(name), "wb") as file:
        file.write(contents)
    return path(name)


def chattr(flag, name):
    subprocess.run(["chattr", flag, name], check=True)


def attempt(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def appends_beside_truncations():
    """Returns true if a file that two threads append to, and another one empties by opening it, has a byte that none wrote."""
    name, line = write("log", b""), b"x" * 60_000

    def append():
        file = os.open(name, os.O_WRONLY | os.O_APPEND)
        [os.write(file, line) for _ in range(100)]
        os.close(file)

    def empty():
        while threads[0].is_alive() or threads[1].is_alive():
            os.close(os.open(name, os.O_WRONLY | os.O_TRUNC))

    for _ in range(20):
        threads = [threading.Thread(target=run) for run in (append, append, empty)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        with open(name, "rb") as file:
            if b"\0" in file.read():
                return True
    return False


def read_without_access():
    name = write("read", b"contents")
    before = os.stat(name).st_atime_ns
    time.sleep(0.02)
    for direct in (0, os.O_DIRECT):
        file = os.open(name, os.O_RDONLY | os.O_NOATIME | direct)
        os.preadv(file, [memoryview(mmap_buffer())], 0)
        os.close(file)
    return os.stat(name).st_atime_ns == before


def mmap_buffer():
    import mmap
    return mmap.mmap(-1, 4096)


def buffered_after_direct():
    name = write("direct", b"a" * 8192)
    file = os.open(name, os.O_RDWR | os.O_DIRECT)
    fcntl.fcntl(file, fcntl.F_SETFL, 0)
    results = attempt(os.pwrite, file, b"0123456789", 100), attempt(os.pread, file, 12, 99)
    os.close(file)
    return results


def overwrite_after_append_only():
    name = write("was-append-only", b"contents")
    chattr("+a", name)
    file = os.open(name, os.O_WRONLY | os.O_APPEND)
    chattr("-a", name)
    results = [os.write(file, b"1")]
    fcntl.fcntl(file, fcntl.F_SETFL, 0)
    results += [os.pwrite(file, b"2", 0), open(name, "rb").read()]
    source = os.open(write("source", b"3"), os.O_RDONLY)
    results += [attempt(os.copy_file_range, source, file, 1, 0, 1), open(name, "rb").read()]
    os.close(source)
    os.close(file)
    return results


def sync():
    """Makes everything durable. Blocks of files that the file system has deleted are free after that."""
    subprocess.run(["sync", "-f", directory], check=True)
    root = os.open(directory, os.O_RDONLY)
    os.fsync(root)
    os.close(root)


def blocks_after_failed_allocation():
    name = write("allocated", b"")
    # Later write-back of earlier files would take blocks.
    sync()
    free = os.statvfs(name)
    os.stat(name)
    file = os.open(name, os.O_RDWR)
    result = attempt(os.posix_fallocate, file, 0, 2 * free.f_bfree * free.f_frsize)
    os.close(file)
    seen = os.stat(name).st_blocks
    os.remove(name)
    # The server deletes the file later than the last close returns.
    for _ in range(2000):
        sync()
        if os.statvfs(directory).f_bfree >= free.f_bfree:
            return result, seen > 0
        time.sleep(0.03)
    return "the blocks are not free"


def append_that_fits_in_part():
    name, filler = write("append-only", b""), write("filler", b"")
    chattr("+a", name)
    # Blocks that were freed are in use until a commit.
    sync()
    free = os.statvfs(name)
    file, filled = os.open(filler, os.O_RDWR), free.f_bfree * free.f_frsize - (256 << 10)
    # The kernel keeps some blocks for metadata.
    while filled > 0 and attempt(os.posix_fallocate, file, 0, filled) is not None:
        filled -= 64 << 10
    os.ftruncate(file, filled - (256 << 10))
    # The kernel uses freed blocks after a commit.
    os.fsync(file)
    os.close(file)
    file = os.open(name, os.O_WRONLY | os.O_APPEND)
    written = attempt(os.write, file, b"x" * (8 << 20))
    os.close(file)
    # Not only as many requests of 1 MiB as find space.
    fits = isinstance(written, int) and written % (1 << 20) != 0 and os.stat(name).st_size == written
    chattr("-a", name)
    os.remove(name)
    os.remove(filler)
    return fits or written


for check in (
    appends_beside_truncations,
    read_without_access,
    buffered_after_direct,
    overwrite_after_append_only,
    blocks_after_failed_allocation,
    append_that_fits_in_part,
):
    print(check.__name__, check())
