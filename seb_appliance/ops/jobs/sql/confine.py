"""Take from this process what a query never needs: files, network, other programs. For good."""

from __future__ import annotations

import ctypes
import errno
import platform
import resource
import struct
from pathlib import Path
from typing import Final

# Numbers of system calls on x86_64 and aarch64 (None: not there).
_DENIED: Final = {
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "creat": (85, None),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "truncate": (76, 45),
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "chown": (92, None),
    "fchownat": (260, 54),
    "mount": (165, 40),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "prlimit64": (302, 261),
}
# Per machine: AUDIT_ARCH, seccomp, clone.
_MACHINES: Final = {"x86_64": (0xC000003E, 317, 56), "aarch64": (0xC00000B7, 277, 220)}
_CLONE3: Final = 435
_CLONE_THREAD: Final = 0x10000
_X32: Final = 0x40000000

_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_GE, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_DUMPABLE: Final = 4
_SET_MODE_FILTER, _TSYNC = 1, 1


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _program(machine: str) -> list[bytes]:
    arch, _, clone = _MACHINES[machine]
    place = list(_MACHINES).index(machine)
    steps = [
        _step(_LOAD, 4),
        _step(_JUMP_EQUAL, arch, yes=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, 0),
    ]
    if machine == "x86_64":
        steps += [_step(_JUMP_GE, _X32, no=1), _step(_RETURN, _KILL)]
    for numbers in _DENIED.values():
        if (number := numbers[place]) is not None:
            steps += [_step(_JUMP_EQUAL, number, no=1), _step(_RETURN, _ERRNO | errno.EACCES)]
    # Threads are made by clone, whose flags can be seen; the C library falls back to it.
    steps += [_step(_JUMP_EQUAL, _CLONE3, no=1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    steps += [
        _step(_JUMP_EQUAL, clone, no=3),
        _step(_LOAD, 16),
        _step(_JUMP_SET, _CLONE_THREAD, yes=1),
        _step(_RETURN, _ERRNO | errno.EACCES),
        _step(_RETURN, _ALLOW),
    ]
    return steps


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def confine(memory_bytes: int, cpu_seconds: int) -> None:
    """All threads, also those that run already. `memory_bytes` come on top of the address space in
    use. Raises OSError where the kernel or the processor cannot do it."""
    machine = platform.machine()
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no system call filter for {machine}")
    statm = Path("/proc/self/statm").read_text(encoding="ascii")
    used = int(statm.split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    steps = _program(machine)
    made = _Filter(len(steps), b"".join(steps))
    seccomp = _MACHINES[machine][1]
    for failed in (
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0),
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        libc.syscall(seccomp, _SET_MODE_FILTER, _TSYNC, ctypes.byref(made)),
    ):
        if failed:
            raise OSError(ctypes.get_errno(), "the process could not be confined")
