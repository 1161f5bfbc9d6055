"""How much of the past a cluster keeps, and whose."""

from __future__ import annotations

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


def test_a_large_object_that_is_rarely_read_takes_a_part_of_its_json() -> None:
    secret: Object = {"data": {"program": "import os\n" * 5000}}
    raw = encoded(secret)
    tracemalloc.start()
    entry = Entry(secret, bytes(bytearray(raw)), 1)
    entry.release_object()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < len(raw) / 2
    assert (entry.raw, entry.object) == (raw, secret)
