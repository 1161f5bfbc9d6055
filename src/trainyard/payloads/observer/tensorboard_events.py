"""Reads the progress of a training from the event files that it writes for TensorBoard.

Only files of this pod that are younger than this process are read, so that those of another run in
the same folder do not count. Mounted into the user's image: standard library, Python 3.8.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from collections import deque
from typing import Any, Iterator  # noqa: UP035 (Python 3.8)

EVERY_SECONDS = 10.0
SOURCE = "TensorBoard"
MOST_FOLDERS_DEEP, MOST_ENTRIES, MOST_FILES = 4, 2000, 16
"""How far it is looked for files: a claim may hold anything."""
MOST_RECORDS, LATEST_RECORDS, LONGEST_RECORD = 4096, 128, 1 << 16
"""Of a file in one look: how many are passed over, and how many of the last are read; a longer one
is no scalar."""
MOST_METRICS, MOST_NAME = 60, 128
_NAME = re.compile(r"events\.out\.tfevents\.(\d+)\.")
_STEP, _SUMMARY = 2, 5
_VALUE = 1
_TAG, _SIMPLE, _TENSOR = 1, 2, 8
_CONTENT, _FLOATS, _DOUBLES = 4, 5, 6
_FLOAT, _DOUBLE = 4, 8


class EventFiles:
    """What the scalars come to that are written below some folders from a time on."""

    def __init__(self, folders: list[str], since: float) -> None:
        """`since`: seconds of Unix time, by which the files have their names."""
        self._folders, self._since = folders, int(since)
        self._host = socket.gethostname()
        self._offsets: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._values: dict[str, float] = {}
        """Of each tag, the one written last at the end."""

    def is_due(self, seconds: float) -> bool:
        """Whether to read on so long after the last time."""
        return seconds > EVERY_SECONDS

    def read_new(self) -> bool:
        """Read on; whether there was anything new."""
        if len(self._offsets) < MOST_FILES:
            for path in self._find_files():
                self._offsets.setdefault(path, 0)
        news = [self._read_on(path) for path in self._offsets]
        return any(news)

    def status(self) -> dict[str, Any]:
        """As the channel takes it: the furthest step of all tags, since a tag may count epochs."""
        step = max(self._steps.values(), default=0)
        named = [("current_step", str(step))] if step > 0 else []
        named += [(tag, f"{value:.7g}") for tag, value in self._values.items()]
        metrics = [{"name": name, "value": value} for name, value in named]
        return {"source": SOURCE, "metrics": metrics}

    def _find_files(self) -> Iterator[str]:
        waiting = deque((folder, 0) for folder in self._folders)
        left = MOST_ENTRIES
        while waiting:
            folder, depth = waiting.popleft()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        left -= 1
                        if left < 0:
                            return
                        if self._is_own_file(entry.name):
                            yield entry.path
                        elif depth < MOST_FOLDERS_DEEP and entry.is_dir(follow_symlinks=False):
                            waiting.append((entry.path, depth + 1))
            except OSError:
                continue

    def _is_own_file(self, name: str) -> bool:
        found = _NAME.match(name)
        return bool(found and int(found[1]) >= self._since and self._host in name[found.end() :])

    def _read_on(self, path: str) -> bool:
        records: deque[bytes] = deque(maxlen=LATEST_RECORDS)
        try:
            with open(path, "rb") as file:
                end = os.fstat(file.fileno()).st_size
                self._offsets[path] = _scan(file, self._offsets[path], end, records)
        except OSError:
            return False
        for record in records:
            try:
                self._take_record(record)
            except (ValueError, TypeError, LookupError, AttributeError, struct.error):
                continue  # whatever it is, it is no scalar
        return bool(records)

    def _take_record(self, record: bytes) -> None:
        known = dict(_fields(record))
        step = known.get(_STEP, 0)
        for number, value in _fields(known.get(_SUMMARY, b"")):
            if number != _VALUE:
                continue
            fields = dict(_fields(value))
            scalar = _scalar(fields)
            if scalar is None or step >= 1 << 53:
                continue
            tag = fields[_TAG].decode("utf-8", "replace")[:MOST_NAME]
            self._values.pop(tag, None)
            self._steps[tag], self._values[tag] = step, scalar
            if len(self._values) > MOST_METRICS:
                oldest = next(iter(self._values))
                del self._values[oldest], self._steps[oldest]


def _scan(file: Any, place: int, end: int, records: deque[bytes]) -> int:
    """Take up the whole records from a place on; where the next one begins.

    https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
    """
    file.seek(place)
    for _ in range(MOST_RECORDS):
        head = file.read(12)
        if len(head) < 12:
            break
        (size,) = struct.unpack("<Q", head[:8])
        if place + 16 + size > end:
            break
        if size <= LONGEST_RECORD:
            records.append(file.read(size))
        place += 16 + size
        file.seek(place)
    return place


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of a message's fields; https://protobuf.dev/programming-guides/encoding/"""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("no field of a kind that is in use")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _scalar(fields: dict[int, Any]) -> float | None:
    """The value of a summary; None of one that is no scalar."""
    if _SIMPLE in fields:
        found: float = struct.unpack("<f", fields[_SIMPLE])[0]
        return found
    tensor = dict(_fields(fields.get(_TENSOR, b"")))
    text = tensor.get(_CONTENT) or tensor.get(_FLOATS) or tensor.get(_DOUBLES) or b""
    if tensor.get(1) not in (1, 2):  # DT_FLOAT, DT_DOUBLE
        return None
    size, form = (_FLOAT, "<f") if tensor[1] == 1 else (_DOUBLE, "<d")
    return struct.unpack(form, text)[0] if len(text) == size else None
