"""Pages that a first process writes, told by one and copied ahead for the next."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.tools import missing
from trainyard.podruntime import pages
from trainyard.podruntime.pages import Pages

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root sees which page is which")

PAGE = mmap.PAGESIZE
WRITTEN = (3, 4, 9)


@pytest.fixture
def memory() -> mmap.mmap:
    """Sixteen pages, all of them written."""
    made = mmap.mmap(-1, 16 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    made[:] = b"x" * len(made)
    return made


def address(memory: mmap.mmap) -> int:
    buffer = (ctypes.c_char * len(memory)).from_buffer(memory)
    return ctypes.addressof(buffer)


def own(memory: mmap.mmap) -> set[int]:
    """Which of its pages nobody else maps."""
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        file.seek(address(memory) // PAGE * 8)
        entries = struct.unpack("=16Q", file.read(16 * 8))
    return {number for number, entry in enumerate(entries) if entry >> 56 & 1}


def forked(known: Pages, do: Callable[[], int]) -> int:
    """What `do` returns in a child that is forked as the zygote forks first processes."""
    known.prepare()
    pid = os.fork()
    if not pid:
        code = 255
        try:
            code = do()
        finally:
            os._exit(code)
    known.leave()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def teach(known: Pages, memory: mmap.mmap) -> int:
    known.begin()
    return teach_what_was_begun(known, memory)


def teach_what_was_begun(known: Pages, memory: mmap.mmap) -> int:
    lesson = known.take()
    for number in WRITTEN:
        memory[number * PAGE] = ord("y")
    if lesson is None:
        return 1
    lesson.tell()
    return 0


def copied(known: Pages, memory: mmap.mmap) -> int:
    """How many of the pages that are written are copied, and 100 if anything else is."""
    known.begin()
    assert known.take() is None
    found = own(memory)
    return len(found & set(WRITTEN)) + (100 if found - set(WRITTEN) else 0)


def test_what_one_has_written_the_next_has_already(memory: mmap.mmap) -> None:
    known = Pages()
    assert forked(known, lambda: teach(known, memory)) == 0
    assert forked(known, lambda: copied(known, memory)) == 3
    assert forked(known, lambda: copied(Pages(), memory)) == 0
    assert memory[3 * PAGE] == ord("x")


def test_neighbours_are_one_range(memory: mmap.mmap) -> None:
    known = Pages()
    forked(known, lambda: teach(known, memory))
    known.prepare()
    top = address(memory)
    ours = [each for each in known._needed if top <= each[0] < top + len(memory)]
    assert ours == [(top + 3 * PAGE, top + 5 * PAGE), (top + 9 * PAGE, top + 10 * PAGE)]


def test_nobody_waits_for_one_that_has_no_order_yet(memory: mmap.mmap) -> None:
    known = Pages()
    reader, writer = os.pipe()
    known.prepare()
    pid = os.fork()
    if not pid:
        os.close(writer)
        os.read(reader, 1)
        os._exit(teach(known, memory))
    os.close(reader)
    known.leave()
    assert forked(known, lambda: copied(known, memory)) == 0
    os.close(writer)
    assert os.waitpid(pid, 0)[1] == 0
    assert forked(known, lambda: copied(known, memory)) == 3


def test_what_the_zygote_writes_is_not_taken_for_the_childs(memory: mmap.mmap) -> None:
    known = Pages()
    reader, writer = os.pipe()
    known.prepare()
    pid = os.fork()
    if not pid:
        os.close(writer)
        known.begin()
        os.read(reader, 1)
        os._exit(teach_what_was_begun(known, memory))
    known.leave()
    memory[12 * PAGE] = ord("z")
    os.close(writer)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(reader)
    assert forked(known, lambda: copied(known, memory)) == 3


def test_when_one_has_died_another_is_asked(memory: mmap.mmap) -> None:
    known = Pages()
    assert forked(known, lambda: 7) == 7
    assert forked(known, lambda: teach(known, memory)) == 0
    assert forked(known, lambda: copied(known, memory)) == 3


@pytest.mark.parametrize("told", [b"", b"x", b"x" * 15, b"\0" * 64, b"\xff" * 1600])
def test_what_cannot_be_is_not_believed(told: bytes, memory: mmap.mmap) -> None:
    known = Pages()

    def lie() -> int:
        os.write(known._writer, told)
        return 0

    assert forked(known, lie) == 0
    assert forked(known, lambda: teach(known, memory)) == 0
    assert forked(known, lambda: copied(known, memory)) == 3


def test_who_may_not_see_its_pages_asks_nobody(
    memory: mmap.mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_PAGEMAP", "/proc/self/no-such-file")
    known = Pages()
    before = os.listdir("/proc/self/fd")
    assert forked(known, lambda: teach(known, memory)) == 1
    assert os.listdir("/proc/self/fd") == before


def test_root_of_a_container_asks_nobody() -> None:
    """It is not told which page is which, so that nobody would ever learn anything."""
    script = (
        "from trainyard.podruntime.pages import Pages; p = Pages(); p.prepare(); print(p._reader)"
    )
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", script]
    if shutil.which("unshare") is None:
        missing("there is no unshare")
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.stderr.startswith("unshare:"):
        missing(f"there are no user namespaces: {ran.stderr}")
    assert (ran.stdout, ran.stderr) == ("-1\n", "")


def test_descriptors_are_given_back(memory: mmap.mmap) -> None:
    known = Pages()
    before = os.listdir("/proc/self/fd")
    forked(known, lambda: teach(known, memory))
    known.prepare()
    assert os.listdir("/proc/self/fd") == before
