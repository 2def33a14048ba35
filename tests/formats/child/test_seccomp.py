"""The filter of system calls, as a program for both machines."""

import os
import struct

import pytest

from upmri.formats.child import seccomp

ALLOW, KILL, REFUSED, UNKNOWN = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PROCESS = 4711


def run(machine, number, *arguments, architecture=None):
    """What the filter answers: a small interpreter of the five kinds of lines that it has."""
    data = struct.pack(
        "=IIQ6Q", number, architecture or ARCHITECTURE[machine], 0, *arguments, *[0] * (6 - len(arguments))
    )
    code = seccomp.program(machine, PROCESS)
    lines = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    assert len(lines) < 4096  # the most that Linux takes
    at = value = 0
    while True:
        kind, yes, no, operand = lines[at]
        at += 1
        if kind == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        elif kind == 0x06:
            return operand
        else:
            passed = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[kind]
            at += yes if passed else no


@pytest.mark.parametrize(
    ("machine", "calls"),
    [
        ("x86_64", {"socket": 41, "execve": 59, "ptrace": 101, "unlink": 87, "ftruncate": 77, "io_uring_setup": 425}),
        ("aarch64", {"socket": 198, "execve": 221, "ptrace": 117, "unlinkat": 35, "ftruncate": 46, "bpf": 280}),
    ],
)
def test_refused_calls(machine, calls):
    assert {name: run(machine, number) for name, number in calls.items()} == dict.fromkeys(calls, REFUSED)


@pytest.mark.parametrize(
    ("machine", "read", "openat", "clone", "kill", "tgkill", "prlimit"),
    [("x86_64", 0, 257, 56, 62, 234, 302), ("aarch64", 63, 56, 220, 129, 131, 261)],
)
def test_calls_that_depend_on_an_argument(machine, read, openat, clone, kill, tgkill, prlimit):
    assert run(machine, read) == ALLOW
    assert run(machine, openat, 0, 0, os.O_RDONLY | os.O_CLOEXEC) == ALLOW
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_APPEND):
        assert run(machine, openat, 0, 0, flags) == REFUSED
    assert run(machine, clone, 0x3D0F00) == ALLOW  # what pthread_create asks for
    assert run(machine, clone, 0x11) == REFUSED  # fork
    for call in (kill, tgkill):
        assert run(machine, call, PROCESS) == ALLOW
        assert [run(machine, call, other) for other in (0, 1, 2**64 - 1)] == [REFUSED] * 3
    assert [run(machine, prlimit, process) for process in (0, PROCESS, 1)] == [ALLOW, ALLOW, REFUSED]
    assert run(machine, 435) == UNKNOWN  # clone3, whose flags lie in memory
    assert run(machine, 437) == UNKNOWN  # openat2, likewise


def test_other_interfaces_of_the_kernel():
    assert run("x86_64", 0, architecture=0x40000003) == KILL  # 32 bits
    assert run("x86_64", 0x40000000) == REFUSED  # x32
