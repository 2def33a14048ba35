"""A filter of system calls for a child that parses files: Linux on x86-64 and aarch64.

What reading never needs is refused with "operation not permitted": sockets, other programs, signals to and memory of
other processes, opening for writing, and every change of files, mounts and the kernel. Threads are allowed. The filter
cannot be taken off again. It is written in classic BPF, see seccomp(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_FOREIGN = 0x40000000  # numbers of the x32 interface begin here
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_CLONE_THREAD = 0x00010000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# Numbers on x86-64 and on aarch64, from Linux' unistd.h; None where there is no such call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "execve": (59, 221), "execveat": (322, 281), "fork": (57, None),
    "vfork": (58, None), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "creat": (85, None), "open_by_handle_at": (304, 265), "unlink": (87, None),
    "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, None),
    "mkdirat": (258, 34), "rmdir": (84, None), "link": (86, None), "linkat": (265, 37), "symlink": (88, None),
    "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33), "chmod": (90, None), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None),
    "fchownat": (260, 54), "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "bpf": (321, 280), "perf_event_open": (298, 241),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "userfaultfd": (323, 282),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "move_mount": (429, 429),
    "open_tree": (428, 428), "fsopen": (430, 430), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "chroot": (161, 51), "pivot_root": (155, 41), "shmget": (29, 194), "shmat": (30, 196),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "setpriority": (141, 140), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "ioprio_set": (251, 30),
    "setsid": (112, 157), "setpgid": (109, 154), "quotactl": (179, 60), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "personality": (135, 92), "syslog": (103, 116),
}  # fmt: skip
# Answered as if the kernel did not know them, so that the C library uses the older call, which can be checked.
_UNKNOWN: dict[str, tuple[int | None, int | None]] = {"clone3": (435, 435), "openat2": (437, 437)}
# The number of the argument that decides, by call.
_OPEN: dict[int, tuple[int | None, int | None]] = {1: (2, None), 2: (257, 56)}  # open, openat: the flags
_SIGNALS = ((62, 129), (234, 131))  # kill, tgkill: the process
_LIMITS = (302, 261)  # prlimit64: the process, 0 for oneself
_CLONE = (56, 220)


def program(machine: str, process: int) -> bytes:
    """Return the filter for a machine ("x86_64" or "aarch64") and for the process with this number."""
    at = list(_AUDIT).index(machine)
    denied = _ERRNO | errno.EPERM
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _FOREIGN),
        (_RETURN, 0, 0, denied),
    ]
    for calls, answer in ((_REFUSED, denied), (_UNKNOWN, _ERRNO | errno.ENOSYS)):
        for numbers in calls.values():
            if (number := numbers[at]) is not None:
                lines += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
    for argument, numbers in _OPEN.items():
        if (number := numbers[at]) is not None:
            lines += _if(number, argument, [(_JUMP_BITS, 0, 1, _WRITING), (_RETURN, 0, 0, denied)])
    lines += _if(_CLONE[at], 0, [(_JUMP_BITS, 1, 0, _CLONE_THREAD), (_RETURN, 0, 0, denied)])
    for signals in _SIGNALS:
        lines += _if(signals[at], 0, [(_JUMP_EQUAL, 1, 0, process), (_RETURN, 0, 0, denied)])
    own = [(_JUMP_EQUAL, 2, 0, process), (_JUMP_EQUAL, 1, 0, 0), (_RETURN, 0, 0, denied)]
    lines += _if(_LIMITS[at], 0, own)
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _if(number: int, argument: int, then: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Return lines that look at the lower half of an argument of one call, and allow it after ``then``."""
    inside = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), *then, (_RETURN, 0, 0, _ALLOW)]
    return [(_JUMP_EQUAL, 0, len(inside), number), *inside]


def deny_new_privileges() -> bool:
    """Keep this process from ever gaining rights, as by a program with the bit of another user."""
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None).prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)


def filter_calls() -> bool:
    """Apply the filter to this process, which must not have started threads; return whether it is in place."""
    machine = platform.machine()
    if not sys.platform.startswith("linux") or machine not in _AUDIT or sys.maxsize < 2**32:
        return False
    code = program(machine, os.getpid())
    buffer = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    given = Program(len(code) // 8, ctypes.addressof(buffer))
    return bool(ctypes.CDLL(None).prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.byref(given), 0, 0) == 0)
