"""Operations of several users on a mount and on a clone of it that maps owner 1000 to user 2000, and what is seen then."""
import ctypes, fcntl, os, signal, stat, struct, sys

OPEN_TREE, MOUNT_SETATTR = 428, 442
AT_FDCWD, AT_EMPTY_PATH, OPEN_TREE_CLONE, MOUNT_ATTR_IDMAP = -100, 0x1000, 1, 0x100000
CLONE_NEWUSER, RENAME_WHITEOUT = 0x10000000, 4
GETFLAGS, SETFLAGS, SETFSLABEL = 0x80086601, 0x40086602, 0x41009432
IMMUTABLE, NODUMP = 0x10, 0x40

libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def user_namespace():
    """A user namespace in which the mount's owners 0 and 1000 are users 0 and 2000."""
    ready, is_ready = os.pipe()
    child = os.fork()
    if child == 0:
        checked(libc.unshare(CLONE_NEWUSER))
        os.write(is_ready, b"x")
        signal.pause()
    os.read(ready, 1)
    for kind in ("uid", "gid"):
        with open(f"/proc/{child}/{kind}_map", "w") as file:
            file.write("0 0 1\n1000 2000 1\n")
    namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return namespace


def mapped_clone(path):
    tree = checked(libc.syscall(OPEN_TREE, AT_FDCWD, path.encode(), OPEN_TREE_CLONE))
    attributes = struct.pack("QQQQ", MOUNT_ATTR_IDMAP, 0, 0, user_namespace())
    checked(libc.syscall(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, len(attributes)))
    return tree


def attempt(where, user, name, act):
    """Acts as a user in a mount's root directory, and prints the error."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.fchdir(mounts[where])
        os.umask(0o022)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        error = 0
        try:
            act()
        except OSError as failure:
            error = failure.errno
        os._exit(error)
    error = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(f"{where} {user} {name}: {error}")


def ioctl(path, command, argument):
    fd = os.open(path, os.O_RDONLY)
    buffer = bytearray(argument)
    fcntl.ioctl(fd, command, buffer)
    os.close(fd)
    return bytes(buffer)


def flag(path, flag):
    def act():
        old = struct.unpack("l", ioctl(path, GETFLAGS, bytes(8)))[0]
        ioctl(path, SETFLAGS, struct.pack("l", old ^ flag))
    return act


def write(path):
    def act():
        with open(path, "r+b") as file:
            file.write(b"written")
    return act


def whiteout(old, new):
    checked(libc.renameat2(AT_FDCWD, old.encode(), AT_FDCWD, new.encode(), RENAME_WHITEOUT))


def access_list(user):
    entries = [(1, 6, -1), (2, 4, user), (4, 4, -1), (16, 4, -1), (32, 4, -1)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


def show(where):
    os.fchdir(mounts[where])
    for name in sorted(os.listdir()):
        found = os.lstat(name)
        print(f"{where} shows {name}: {found.st_uid} {found.st_gid} {found.st_mode:o}")


path = sys.argv[1]
mounts = {"plain": os.open(path, os.O_RDONLY)}
try:
    mounts["mapped"] = mapped_clone(path)
except OSError as failure:
    sys.exit(f"idmap: {failure.errno}")

os.chmod(path, 0o1777)
for owner in (0, 1000, 2000):
    for name, mode in ((f"of{owner}", 0o644), (f"setid-of{owner}", 0o6777), (f"setgid-of{owner}", 0o2766)):
        with open(f"{path}/{name}", "w") as file:
            file.write("contents")
        os.chown(f"{path}/{name}", owner, owner)
        os.chmod(f"{path}/{name}", mode)

for where in mounts:
    for user in (0, 1000, 2000, 3000):
        made = f"{where}{user}"
        attempt(where, user, "create", lambda: os.close(os.open(made, os.O_CREAT | os.O_WRONLY | os.O_EXCL)))
        attempt(where, user, "mkdir", lambda: os.mkdir(made + "dir"))
        attempt(where, user, "symlink", lambda: os.symlink("x", made + "link"))
        attempt(where, user, "mknod", lambda: os.mknod(made + "fifo", 0o644 | stat.S_IFIFO))
        attempt(where, user, "create to rename", lambda: os.mknod(made + "old", 0o644 | stat.S_IFREG))
        attempt(where, user, "whiteout", lambda: whiteout(made + "old", made + "new"))
        attempt(where, user, "label", lambda: ioctl("of0", SETFSLABEL, b"label".ljust(256, b"\0")))
        for owner in (0, 1000, 2000):
            of = f"of{owner}"
            attempt(where, user, f"write {of}", write(of))
            attempt(where, user, f"chmod {of}", lambda: os.chmod(of, 0o664))
            attempt(where, user, f"chmod back {of}", lambda: os.chmod(of, 0o644))
            for _ in range(2):
                attempt(where, user, f"immutable {of}", flag(of, IMMUTABLE))
            if user != 0:
                attempt(where, user, f"nodump {of}", flag(of, NODUMP))
                attempt(where, user, f"give away {of}", lambda: os.chown(of, 3000, 3000))
                attempt(where, user, f"list {of}", lambda: os.setxattr(of, "system.posix_acl_access", access_list(0)))
            attempt(where, user, f"remove list {of}", lambda: os.removexattr(of, "system.posix_acl_access"))
            for kind in ("setid", "setgid"):
                attempt(where, user, f"truncate {kind}-{of}", lambda: os.truncate(f"{kind}-{of}", 3))
                print(f"{where} {user} leaves {kind}-{of}: {os.lstat(f'{path}/{kind}-{of}').st_mode:o}")
                os.chmod(f"{path}/{kind}-{of}", 0o6777 if kind == "setid" else 0o2766)
    attempt(where, 0, "give", lambda: os.chown("setid-of0", 2000, 2000))
    attempt(where, 0, "give to nobody", lambda: os.chown("of0", 3000, 3000))
    print(os.lstat(f"{path}/setid-of0").st_uid)
    os.chown(f"{path}/setid-of0", 0, 0)
    os.chown(f"{path}/of0", 0, 0)
attempt("mapped", 0, "list", lambda: os.setxattr("of0", "system.posix_acl_access", access_list(2000)))
print(os.getxattr(f"{path}/of0", "system.posix_acl_access").hex())
for where in mounts:
    show(where)
