"""Attempts each operation of a subject on each kind of file, in each kind of directory, as each actor, in a place as
it was made. Prints a line for each: what was attempted, by which user, the error, and what has changed afterwards.

usage: attempts.py DIR SUBJECT
"""
import ctypes, errno, hashlib, mmap, os, shutil, stat, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
SETFLAGS, GETFLAGS = 0x40086602, 0x80086601
IMMUTABLE, APPEND = 0x10, 0x20
OWNER, SOMEBODY, GROUP = 1000, 65534, 1001
CAP_FOWNER = 3


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def ioctl(fd, number, argument=b""):
    buffer = ctypes.create_string_buffer(argument, 4096)
    check(libc.ioctl(fd, ctypes.c_ulong(number), buffer))


def set_flags(path, flags):
    fd = os.open(path, os.O_RDONLY)
    ioctl(fd, SETFLAGS, struct.pack("Q", 0x80000 | flags))
    os.close(fd)


def flags_of(path):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return 0
    buffer = ctypes.create_string_buffer(8)
    failed = libc.ioctl(fd, ctypes.c_ulong(GETFLAGS), buffer) < 0
    os.close(fd)
    return 0 if failed else struct.unpack("I", buffer.raw[:4])[0] & 0x30


def set_caps(mask):
    header = struct.pack("Ii", 0x20080522, 0)
    low, high = mask & 0xffffffff, mask >> 32
    data = struct.pack("IIIIII", low, low, 0, high, high, 0)
    check(libc.syscall(126, header, data))


def become(uid, groups=(), caps=None):
    def enter():
        check(libc.prctl(8, 1, 0, 0, 0))  # PR_SET_KEEPCAPS
        os.setgroups(list(groups))
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        set_caps(caps or 0)
    return enter


ACTORS = {
    "root without capabilities": become(0),
    "owner": become(OWNER),
    "somebody in group": become(SOMEBODY, [GROUP]),
    "somebody with FOWNER": become(SOMEBODY, caps=1 << CAP_FOWNER),
}


def acl(*entries):
    return struct.pack("I", 2) + b"".join(struct.pack("HHI", *entry) for entry in entries)


NONE = 0xffffffff
MINIMAL = acl((1, 7, NONE), (4, 7, NONE), (0x20, 7, NONE))
NAMED = acl((1, 6, NONE), (2, 7, SOMEBODY), (4, 5, NONE), (0x10, 7, NONE), (0x20, 4, NONE))
BROKEN = acl((1, 6, NONE), (2, 7, SOMEBODY), (0x20, 4, NONE))
CAPS = struct.pack("IIIII", 0x02000001, 1 << 10, 0, 0, 0)


class Place:
    """A directory with a file, opened for reading and writing by root before it got its flags."""

    def __init__(self, top, mode, owner, file_flags, dir_flags, dir_mode):
        self.top = top
        os.mkdir(top)
        self.dir, self.other = os.path.join(top, "dir"), os.path.join(top, "other")
        for path in (self.dir, self.other):
            os.mkdir(path)
        self.file, self.peer = os.path.join(self.dir, "file"), os.path.join(self.dir, "peer")
        self.source, self.sub = os.path.join(self.other, "source"), os.path.join(self.dir, "sub")
        for path in (self.file, self.peer, self.source):
            with open(path, "wb") as file:
                file.write(b"contents" * 1024)
            os.chown(path, owner, GROUP)
            os.chmod(path, mode)
        os.mkdir(self.sub)
        os.symlink("file", os.path.join(self.dir, "symlink"))
        os.mkfifo(os.path.join(self.dir, "fifo"))
        os.chmod(os.path.join(self.dir, "fifo"), 0o666)
        os.setxattr(self.file, "user.old", b"old")
        os.chmod(self.dir, dir_mode)
        os.chmod(self.other, 0o777)
        os.chmod(top, 0o777)
        self.fd = os.open(self.file, os.O_RDWR)
        if file_flags:
            set_flags(self.file, file_flags)
        if dir_flags:
            set_flags(self.dir, dir_flags)

    def clear(self):
        os.close(self.fd)
        for path, dirs, files in os.walk(self.top):
            set_flags(path, 0)
            for name in files:
                name = os.path.join(path, name)
                if stat.S_ISREG(os.lstat(name).st_mode):
                    set_flags(name, 0)
        shutil.rmtree(self.top)

    def state(self):
        seen = []
        for path, dirs, files in sorted(os.walk(self.top)):
            for name in sorted(dirs + files) + ["."]:
                name = os.path.join(path, name)
                found = os.lstat(name)
                said = [os.path.relpath(name, self.top), oct(found.st_mode), found.st_uid, found.st_gid, found.st_rdev]
                if not stat.S_ISDIR(found.st_mode):
                    said += [found.st_nlink, found.st_size]
                said.append(hex(flags_of(name)))
                if stat.S_ISREG(found.st_mode):
                    with open(name, "rb") as file:
                        said.append(hashlib.md5(file.read()).hexdigest()[:6])
                for attribute in sorted(os.listxattr(name, follow_symlinks=False)):
                    value = os.getxattr(name, attribute, follow_symlinks=False)
                    said.append("%s=%s" % (attribute, hashlib.md5(value).hexdigest()[:4]))
                seen.append(" ".join(map(str, said)))
        return seen


def opens(flags):
    return lambda at: os.close(os.open(at.file, flags, 0o644))


def creates(flags, mode):
    return lambda at: os.close(os.open(os.path.join(at.dir, "new"), flags | os.O_CREAT, mode))


def rename(old, new, flags):
    check(libc.renameat2(-100, old.encode(), -100, new.encode(), flags))


def fallocate(at, mode, offset, len):
    check(libc.fallocate(at.fd, mode, ctypes.c_long(offset), ctypes.c_long(len)))


def opened(flags, act):
    def run(at):
        fd = os.open(at.file, flags)
        try:
            act(fd)
        finally:
            os.close(fd)
    return run


def direct(at):
    fd = os.open(at.file, os.O_WRONLY | os.O_DIRECT)
    memory = mmap.mmap(-1, 4096)
    try:
        os.writev(fd, [memory])
    finally:
        os.close(fd)


def copied(at):
    fd = os.open(at.source, os.O_RDONLY)
    os.copy_file_range(fd, at.fd, 100, 0, 0)


def copied_by_path(at):
    source, target = os.open(at.source, os.O_RDONLY), os.open(at.file, os.O_WRONLY)
    os.copy_file_range(source, target, 100, 0, 0)


def sent(at):
    fd = os.open(at.source, os.O_RDONLY)
    os.sendfile(at.fd, fd, 0, 100)


def spliced(at):
    ends = os.pipe()
    os.write(ends[1], b"spliced")
    os.splice(ends[0], at.fd, 7, offset_dst=0)


def below(name):
    return lambda at: os.path.join(at.dir, name)


def setxattr(name, value=b"value", flags=0, path="file"):
    return lambda at: os.setxattr(os.path.join(at.dir, path), name, value, flags, follow_symlinks=False)


def removexattr(name, path="file"):
    return lambda at: os.removexattr(os.path.join(at.dir, path), name, follow_symlinks=False)


def getxattr(name):
    return lambda at: os.getxattr(at.file, name)


def command(number, argument):
    return lambda at: opened(os.O_RDONLY, lambda fd: ioctl(fd, number, argument))(at)


CONTENTS = {
    "open r": opens(os.O_RDONLY), "open w": opens(os.O_WRONLY), "open rw": opens(os.O_RDWR),
    "open wa": opens(os.O_WRONLY | os.O_APPEND), "open wt": opens(os.O_WRONLY | os.O_TRUNC),
    "open rt": opens(os.O_RDONLY | os.O_TRUNC), "open wat": opens(os.O_WRONLY | os.O_APPEND | os.O_TRUNC),
    "open noatime": opens(os.O_RDONLY | os.O_NOATIME), "open creat": opens(os.O_WRONLY | os.O_CREAT),
    "open dw": opens(os.O_WRONLY | os.O_DIRECT), "open dwa": opens(os.O_WRONLY | os.O_DIRECT | os.O_APPEND),
    "write": opened(os.O_WRONLY, lambda fd: os.write(fd, b"new")),
    "append": opened(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"new")),
    "append at": opened(os.O_WRONLY | os.O_APPEND, lambda fd: os.pwrite(fd, b"new", 0)),
    "write nothing": opened(os.O_WRONLY, lambda fd: os.write(fd, b"")),
    "direct": direct, "truncate": lambda at: os.truncate(at.file, 10), "truncate same": lambda at: os.truncate(at.file, 8192),
    "truncate up": lambda at: os.truncate(at.file, 10000), "copy by path": copied_by_path,
    "truncate opened": opened(os.O_WRONLY, lambda fd: os.ftruncate(fd, 10)),
    "truncate appended": opened(os.O_WRONLY | os.O_APPEND, lambda fd: os.ftruncate(fd, 10)),
    "allocate opened": opened(os.O_WRONLY, lambda fd: check(libc.fallocate(fd, 0, ctypes.c_long(0), ctypes.c_long(9000)))),
    "punch opened": opened(os.O_WRONLY, lambda fd: check(libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(4096)))),
    "old write": lambda at: os.pwrite(at.fd, b"new", 0), "old ftruncate": lambda at: os.ftruncate(at.fd, 10),
    "old allocate": lambda at: fallocate(at, 0, 0, 16384), "old allocate keep": lambda at: fallocate(at, 1, 8192, 8192),
    "old punch": lambda at: fallocate(at, 3, 0, 4096), "old zero": lambda at: fallocate(at, 0x10, 0, 4096),
    "old zero keep": lambda at: fallocate(at, 0x11, 4096, 9000),
    "old copy": copied, "old sendfile": sent, "old splice": spliced,
    "old read": lambda at: os.pread(at.fd, 10, 0), "old sync": lambda at: os.fsync(at.fd),
    "old fchmod": lambda at: os.fchmod(at.fd, 0o600), "old fchown": lambda at: os.fchown(at.fd, -1, -1),
    "old futimes": lambda at: os.utime(at.fd), "old fsetxattr": lambda at: os.setxattr(at.fd, "user.new", b"new"),
}
NAMES = {
    "unlink": lambda at: os.unlink(at.file), "rmdir": lambda at: os.rmdir(at.sub),
    "rename": lambda at: os.rename(at.file, at.dir + "/new"), "rename out": lambda at: os.rename(at.file, at.other + "/new"),
    "rename over": lambda at: os.rename(at.peer, at.file), "rename in": lambda at: os.rename(at.source, at.dir + "/new"),
    "rename in over": lambda at: os.rename(at.source, at.file), "rename noreplace": lambda at: rename(at.file, at.dir + "/new", 1),
    "exchange": lambda at: rename(at.file, at.peer, 2), "exchange out": lambda at: rename(at.file, at.source, 2),
    "exchange in": lambda at: rename(at.source, at.file, 2), "exchange dir": lambda at: rename(at.file, at.sub, 2),
    "whiteout": lambda at: rename(at.file, at.dir + "/new", 4), "whiteout out": lambda at: rename(at.file, at.other + "/new", 4),
    "whiteout over": lambda at: rename(at.file, at.peer, 4), "whiteout noreplace": lambda at: rename(at.file, at.dir + "/new", 5),
    "whiteout exchange": lambda at: rename(at.file, at.peer, 6), "rename dir": lambda at: os.rename(at.sub, at.dir + "/new"),
    "rename dir out": lambda at: os.rename(at.sub, at.other + "/new"), "rename top": lambda at: os.rename(at.dir, at.top + "/new"),
    "link": lambda at: os.link(at.file, at.dir + "/new"), "link out": lambda at: os.link(at.file, at.other + "/new"),
    "link in": lambda at: os.link(at.source, at.dir + "/new"),
    "link opened": lambda at: os.link("/proc/self/fd/%d" % at.fd, at.other + "/new", follow_symlinks=True),
    "create": creates(os.O_WRONLY, 0o666), "create set-id": creates(os.O_WRONLY, 0o6777), "create sticky": creates(os.O_WRONLY, 0o1777),
    "mkdir": lambda at: os.mkdir(at.dir + "/new"), "mkdir set-id": lambda at: os.mkdir(at.dir + "/new", 0o7777),
    "symlink": lambda at: os.symlink("file", at.dir + "/new"), "mkfifo": lambda at: os.mkfifo(at.dir + "/new"),
    "mknod char": lambda at: os.mknod(at.dir + "/new", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
    "mknod zero": lambda at: os.mknod(at.dir + "/new", stat.S_IFCHR | 0o666, 0),
    "mknod block": lambda at: os.mknod(at.dir + "/new", stat.S_IFBLK | 0o666, os.makedev(7, 0)),
    "mknod socket": lambda at: os.mknod(at.dir + "/new", stat.S_IFSOCK | 0o6666), "mknod file": lambda at: os.mknod(at.dir + "/new", 0o6666),
    "chmod dir": lambda at: os.chmod(at.dir, 0o2700), "utime dir": lambda at: os.utime(at.dir),
    "setxattr dir": lambda at: os.setxattr(at.dir, "user.new", b"new"),
    "default acl": lambda at: os.setxattr(at.dir, "system.posix_acl_default", NAMED),
    "acl dir": lambda at: os.setxattr(at.dir, "system.posix_acl_access", NAMED),
}
ATTRIBUTES = {
    "chmod": lambda at: os.chmod(at.file, 0o600), "chmod set-id": lambda at: os.chmod(at.file, 0o6777),
    "chmod setgid": lambda at: os.chmod(at.file, 0o2644), "chmod sticky": lambda at: os.chmod(at.file, 0o1777),
    "chown nothing": lambda at: os.chown(at.file, -1, -1), "chown to somebody": lambda at: os.chown(at.file, SOMEBODY, -1),
    "chown to owner": lambda at: os.chown(at.file, OWNER, -1), "chown to root": lambda at: os.chown(at.file, 0, 0),
    "chgrp own": lambda at: os.chown(at.file, -1, os.getgid()), "chgrp group": lambda at: os.chown(at.file, -1, GROUP),
    "chgrp other": lambda at: os.chown(at.file, -1, 1234), "chown both": lambda at: os.chown(at.file, OWNER, GROUP),
    "utime now": lambda at: os.utime(at.file), "utime": lambda at: os.utime(at.file, (1, 1)),
    "utime part": lambda at: os.utime(at.file, ns=(5, 5)), "chown symlink": lambda at: os.lchown(at.dir + "/symlink", OWNER, GROUP),
    **{"set %s" % name: setxattr(name) for name in [
        "user.new", "user.old", "trusted.new", "security.new", "security.selinux", "system.new", "new", "user.", "User.new", "os2.new",
        "security.capability", "security.ima", "security.evm", "system.posix_acl_access", "system.data", "trusted.", "user.parext4.stats"]},
    **{"remove %s" % name: removexattr(name) for name in [
        "user.new", "user.old", "trusted.new", "security.new", "security.capability", "system.posix_acl_access", "system.new", "new"]},
    **{"get %s" % name: getxattr(name) for name in ["user.old", "trusted.new", "security.new", "system.posix_acl_access", "system.new", "new", "system.data"]},
    "create user.old": setxattr("user.old", flags=1), "replace user.new": setxattr("user.new", flags=2), "both user.new": setxattr("user.new", flags=3),
    "strange user.new": setxattr("user.new", flags=4),
    "set capabilities": setxattr("security.capability", CAPS),
    "acl minimal": setxattr("system.posix_acl_access", MINIMAL), "acl named": setxattr("system.posix_acl_access", NAMED),
    "acl broken": setxattr("system.posix_acl_access", BROKEN), "acl empty": setxattr("system.posix_acl_access", b""),
    "acl version": setxattr("system.posix_acl_access", b"\1\0\0\0" + NAMED[4:]), "acl default of file": setxattr("system.posix_acl_default", NAMED),
    "acl symlink": setxattr("system.posix_acl_access", NAMED, path="symlink"), "acl fifo": setxattr("system.posix_acl_access", NAMED, path="fifo"),
    "user symlink": setxattr("user.new", path="symlink"), "user fifo": setxattr("user.new", path="fifo"),
    "trusted symlink": setxattr("trusted.new", path="symlink"), "security symlink": setxattr("security.new", path="symlink"),
    "security fifo": setxattr("security.new", path="fifo"), "remove user symlink": removexattr("user.new", path="symlink"),
    "acl opened": lambda at: os.setxattr(at.fd, "system.posix_acl_access", NAMED),
    "list": lambda at: os.listxattr(at.file),
}
COMMANDS = {
    "set none": command(SETFLAGS, struct.pack("Q", 0x80000)), "set +i": command(SETFLAGS, struct.pack("Q", 0x80010)),
    "set +a": command(SETFLAGS, struct.pack("Q", 0x80020)), "set +d": command(SETFLAGS, struct.pack("Q", 0x80040)),
    "set verity": command(SETFLAGS, struct.pack("Q", 0x180000)), "set encrypt": command(SETFLAGS, struct.pack("Q", 0x80800)),
    "set +S": command(SETFLAGS, struct.pack("Q", 0x80008)), "set +A": command(SETFLAGS, struct.pack("Q", 0x80080)),
    "set +i as 32 bits": command(0x40046602, struct.pack("Q", 0x80010)), "x none": command(0x401c5820, bytes(28)),
    "x +i": command(0x401c5820, struct.pack("I", 8) + bytes(24)), "x +a": command(0x401c5820, struct.pack("I", 0x10) + bytes(24)),
    "set version": command(0x40087602, struct.pack("Q", 7)), "set version 32": command(0x40047602, struct.pack("Q", 7)),
    "resize": command(0x40086610, struct.pack("Q", 1 << 20)), "swap boot": command(0x6611, b""),
    "set uuid": command(0x4008662c, bytes(24)), "trim": command(0xc0185879, struct.pack("QQQ", 0, 1 << 40, 0)),
    "label": command(0x41009432, b"label\0"), "checkpoint": command(0x4004662b, bytes(4)),
    "clone": lambda at: opened(os.O_WRONLY, lambda fd: check(libc.ioctl(fd, ctypes.c_ulong(0x40049409), os.open(at.source, os.O_RDONLY))))(at),
}
SUBJECTS = {"contents": CONTENTS, "names": NAMES, "attributes": ATTRIBUTES, "commands": COMMANDS}

# The modes and flags of the file, and the modes and flags of its directory.
PLACES = {
    "contents": [(0o6777, 0, 0o777, 0), (0o6777, IMMUTABLE, 0o777, 0), (0o666, APPEND, 0o777, 0), (0o6777, APPEND, 0o777, 0)],
    "attributes": [(0o6777, 0, 0o777, 0), (0o666, IMMUTABLE, 0o777, 0), (0o6777, APPEND, 0o777, 0)],
    "commands": [(0o666, 0, 0o777, 0), (0o666, IMMUTABLE, 0o777, 0), (0o666, APPEND, 0o777, 0)],
    "names": [(0o666, 0, 0o777, 0), (0o666, IMMUTABLE, 0o777, 0), (0o666, APPEND, 0o777, 0), (0o666, 0, 0o1777, 0),
              (0o666, 0, 0o2755, 0), (0o666, 0, 0o777, APPEND), (0o666, 0, 0o777, IMMUTABLE)],
}
def act(actor, operation, at):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.umask(0)
            ACTORS[actor]()
            os.chdir("/")
            result = operation(at)
            said = "0" if not isinstance(result, (bytes, list)) else "0 %r" % (result,)
        except OSError as error:
            said = errno.errorcode.get(error.errno, str(error.errno))
        except BaseException as error:
            said = "%s: %s" % (type(error).__name__, error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    said = b""
    while part := os.read(reading, 65536):
        said += part
    os.close(reading)
    os.waitpid(child, 0)
    return said.decode()


def main(top, subject):
    os.umask(0)
    nth = 0
    for mode, flags, dir_mode, dir_flags in PLACES[subject]:
        # An attempt that has changed nothing leaves its place to the next one by an actor who needs the same owner.
        unchanged = {}
        for name, operation in SUBJECTS[subject].items():
            for actor in ACTORS:
                owner = OWNER if actor == "owner" else 0
                if owner not in unchanged:
                    at = Place(os.path.join(top, "case%d" % nth), mode, owner, flags, dir_flags, dir_mode)
                    unchanged[owner] = (at, at.state())
                    nth += 1
                at, before = unchanged[owner]
                outcome = act(actor, operation, at)
                after = at.state()
                if after != before:
                    at.clear()
                    del unchanged[owner]
                changed = [line for line in after if line not in before]
                print("%s | file %o, flags %#x | dir %o, flags %#x | %s: %s" % (
                    name, mode, flags, dir_mode, dir_flags, actor, outcome), *changed, sep="; ")
        for at, _ in unchanged.values():
            at.clear()


main(*sys.argv[1:])
