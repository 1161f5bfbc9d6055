"""How much of the past a cluster keeps, and whose."""

from __future__ import annotations

import base64
import random
import tracemalloc

import pytest

from trainyard.embedded.storage.journal import Entry, Event, Journal, Object, encoded
from trainyard.kube.errors import Gone

LIMIT = 1 << 20


def change(journal: Journal, resource: str, revision: int, size: int = 100) -> None:
    """An object replaces another of its size."""
    before = entry(revision - 1, size)
    after = entry(revision, size)
    event = Event("MODIFIED", resource, after.object, before.object, after.raw, revision)
    journal.record(event, after, before)


def entry(revision: int, size: int) -> Entry:
    obj: Object = {"metadata": {"name": "x" * size, "resourceVersion": str(revision)}}
    return Entry(obj, encoded(obj), revision)


@pytest.mark.parametrize("size", [10, 1_000, 100_000])
def test_the_past_of_all_resources_together_takes_no_more_memory_than_its_limit(size: int) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        journal = Journal(1, LIMIT)
        for revision in range(2, max(100, 8 * LIMIT // (size + 100))):
            change(journal, f"resource-{revision % 4}", revision, size)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # Deques and tables come on top, and are a few KB each.
    assert LIMIT / 4 < taken < LIMIT + (64 << 10)


def test_a_burst_in_one_resource_costs_watchers_of_others_nothing() -> None:
    journal = Journal(1, LIMIT)
    for revision in range(2, 12):
        change(journal, "quiet", revision)
    for revision in range(12, 20_000):
        change(journal, "busy", revision)
    assert [event.revision for event in journal.since("quiet", 5)] == [6, 7, 8, 9, 10, 11]
    with pytest.raises(Gone):
        journal.since("busy", 12)
    assert journal.since("busy", 19_990)


def test_the_newest_change_stays_however_large_it_is() -> None:
    journal = Journal(1, LIMIT)
    change(journal, "large", 2, 2 * LIMIT)
    change(journal, "large", 3, 2 * LIMIT)
    assert [event.revision for event in journal.since("large", 2)] == [3]


def test_a_large_object_at_rest_takes_a_part_of_its_json() -> None:
    secret: Object = {"data": {"program": "import os\n" * 5000}}
    raw = encoded(secret)
    tracemalloc.start()
    entry = Entry(secret, bytes(bytearray(raw)), 1)
    entry.rest()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < len(raw) / 2
    assert (entry.raw, entry.object) == (raw, secret)


def test_large_objects_at_rest_that_have_much_in_common_take_little_each() -> None:
    """Each job's Secret had its own 29 KB of programs, and no other kind is to suffer by it."""
    dice = random.Random(1)
    programs = {kind: base64.b64encode(dice.randbytes(21_000)).decode() for kind in ("A", "B")}
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = []
        for number in range(100):
            for kind, program in programs.items():
                metadata = {"name": f"{kind}-{number}", "resourceVersion": str(number)}
                obj: Object = {"kind": kind, "metadata": metadata, "data": {"program": program}}
                kept.append(Entry(obj, encoded(obj), number))
                kept[-1].rest()
        taken = tracemalloc.get_traced_memory()[0] - before
        assert taken < len(kept) * 2_000, taken
    finally:
        tracemalloc.stop()
    assert [each.object["metadata"]["name"] for each in kept[-2:]] == ["A-99", "B-99"]
    assert kept[0].object["data"]["program"] == programs["A"]


def test_strangers_do_not_spoil_it_for_those_that_have_much_in_common() -> None:
    """After 64 of them a server packed nothing by another any more, until it started again."""
    dice = random.Random(3)

    def made(number: int, program: str) -> Entry:
        obj: Object = {"kind": "D", "metadata": {"name": str(number)}, "data": program}
        entry = Entry(obj, encoded(obj), number)
        entry.rest()
        return entry

    for number in range(100):
        made(number, base64.b64encode(dice.randbytes(21_000)).decode())
    program = base64.b64encode(dice.randbytes(21_000)).decode()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [made(number, program) for number in range(200)]
        for number in range(0, 200, 10):  # one now and then does no harm
            made(number, base64.b64encode(dice.randbytes(21_000)).decode())
            kept.append(made(number, program))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < len(kept) * 2_000, taken
    assert kept[150].object["data"] == program


def test_objects_without_a_kind_at_their_beginning_are_of_one_kind() -> None:
    """Nothing is kept for each of them."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(200):
            obj: Object = {"data": f"{number}" + "import os\n" * 5000, "metadata": {"name": "x"}}
            Entry(obj, encoded(obj), number).rest()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < 200_000


def test_large_objects_that_have_nothing_in_common_hold_few_others() -> None:
    """What one is packed by stays as long as it does."""
    dice = random.Random(2)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = []
        for number in range(500):
            data = base64.b64encode(dice.randbytes(21_000)).decode()
            obj: Object = {"kind": "C", "metadata": {"name": str(number)}, "data": data}
            kept.append(Entry(obj, encoded(obj), number))
            kept[-1].rest()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < 500 * 23_000 + (2 * 32 << 10)
    assert kept[7].object["metadata"]["name"] == "7"
