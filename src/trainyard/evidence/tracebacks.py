"""Exceptions in a log: what was raised, where in whose source, and by which of several processes.

Reads the tracebacks of CPython (chained, grouped, re-raised from a worker of a DataLoader or from
another process), errors of syntax, the stacks of faulthandler, and what C++ says before it aborts.
Lines of several processes may be mixed as long as each one's begin alike (`[rank1]: `,
`worker-0: `, `[default0]:`). One pass over the lines; none makes it raise, or take long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from trainyard.evidence.exception_messages import Message
from trainyard.evidence.source_frames import Frame, parse_frame, parse_source
from trainyard.schema.dataclass import dataclass

_HEAD = "Traceback (most recent call last"
_FATAL = "Fatal Python error: "
_THROWN = "terminate called after throwing an instance of '"
_LONGEST = 2000
"""Characters of a line that are looked at."""
_PATIENCE = 200
"""Lines of others that may stand between those of one traceback."""
_MOST_FRAMES, _MOST_OPEN, _FEW = 400, 64, 4
_RAISED = re.compile(
    r"((?:[A-Za-z_]\w*\.)*(?:_*[A-Z]\w*|error|timeout|gaierror|herror))(?:: (.*)|:)?"
)
"""The last line of a traceback: a class, by custom in capitals, or one of C's that is not."""
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LOGGED = re.compile(
    r"\b(?:ERROR|WARNING|CRITICAL|INFO|DEBUG)\b|^[WEI]\d{4} |Exception (?:ignored )?in\b"
    r"|^future: <|Task exception was never retrieved"
)
"""Before a traceback: that it was told of, by a logger or a thread, rather than ended a process."""
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
_WORKER_GONE = "DataLoader worker (pid(s) "
"""How torch sums up what the exception before says of one."""
_MEMBER = re.compile(r"[ |]*\+-[+-]* (?:\d+|\.\.\.) -+")
"""Above each exception of an ExceptionGroup."""
_FROM_USER_CODE = "from user code:"
"""torch.compile shows the user's place below the message."""
_RANK = re.compile(r"(?:[a-z][\w-]*-\d+: )?\[(?:rank|default(?:_\w+?)?)(\d+)\]:?")


@dataclass(frozen=True, slots=True)
class RaisedException:
    """One exception, or a fatal error of the interpreter."""

    type: str
    """Its class, with its module as the traceback has it; of a fatal error what Python calls it."""
    message: str = ""
    frames: tuple[Frame, ...] = ()
    """Outermost first."""
    prefix: str = ""
    """What its lines begin with."""
    first: int = 0
    """Where it begins: index of a line."""
    last: int = 0
    """Where it ends."""
    is_logged: bool = False
    """Whether it was only told of, and ended no process."""
    worker: str = ""
    """What it was raised in, if that is a helper of the process: `DataLoader worker process 0`."""
    root: RaisedException | None = None
    """The exception from which it followed."""
    is_native: bool = False
    """A crash of native code, with the stack of Python above it."""

    @property
    def text(self) -> str:
        """`ValueError: rate is negative`; the class alone where there are no words."""
        name = self.type.rpartition(".")[2] if not self.is_native else self.type
        return f"{name}: {self.message}" if self.message else name

    @property
    def rank(self) -> int | None:
        """The rank that its lines begin with, behind the replica where pdsh names it."""
        found = _RANK.match(self.prefix.lstrip())
        return int(found[1]) if found else None

    @property
    def place(self) -> Frame | None:
        """Where it was raised in the user's own source; in anybody's, where none is the user's."""
        own = [frame for frame in self.frames if frame.is_own]
        return next(reversed(own or self.frames), None)


def find_exceptions(lines: Sequence[str]) -> list[RaisedException]:
    """All exceptions of a log, in the order in which they end."""
    reader = _Reader()
    for number, line in enumerate(lines):
        reader.take(number, _ESCAPE.sub("", line[:_LONGEST]))
    return reader.done()


@dataclass(slots=True)
class _Open:
    """A traceback whose last line has not come."""

    prefix: str
    first: int
    is_logged: bool = False
    root: RaisedException | None = None
    frames: list[Frame] = field(default_factory=list)
    worker: str = ""
    strangers: int = 0
    heads: int = 1
    """How many begin alike: processes whose lines cannot be told apart."""
    reopened: RaisedException | None = None
    """What was read already and has more frames."""
    width: int = 0
    """Of the box around it, where there is one."""


@dataclass(slots=True)
class _Reader:
    found: list[RaisedException] = field(default_factory=list)
    _open: dict[str, _Open] = field(default_factory=dict)
    _linked: dict[str, RaisedException] = field(default_factory=dict)
    """By prefix, the exception from which the next one follows."""
    _fatal: _Fatal | None = None
    _line: str = ""
    _before: str = ""
    _message: Message = field(default_factory=Message)
    """Of the last that was found, where more of it may come."""

    def take(self, number: int, line: str) -> None:
        """The next line."""
        self._line = line
        if self._fatal is not None:
            if self._fatal.take(number, line):
                return
            self._end_fatal()
        if (at := line.find(_HEAD)) >= 0:
            self._begin(number, line[:at])
        elif (at := line.find(_FATAL)) >= 0:
            self._end_fatal()
            what = line[at + len(_FATAL) :].strip() or "Fatal Python error"
            self._fatal = _Fatal(line[:at], number, what, number)
        elif (at := line.find(_THROWN)) >= 0:
            name = line[at + len(_THROWN) :].partition("'")[0] or "an exception of C++"
            self.found.append(
                RaisedException(name, "", (), line[:at], number, number, is_native=True)
            )
            self._message = Message(is_native=True)
        elif not self._continue(number, line):
            self._read_outside(number, line)
        if line.strip():
            self._before = line

    def done(self) -> list[RaisedException]:
        """All that was found; what has no end is left out, a fatal error has none."""
        self._end_fatal()
        for each in [each for each in self._open.values() if each.reopened is not None]:
            self._close_reopened(each)
        return self.found

    def _end_fatal(self) -> None:
        fatal, self._fatal = self._fatal, None
        if fatal is None:
            return
        raised, last = fatal.raised(), self.found[-1] if self.found else None
        if last is not None and last.is_native and 0 < fatal.first - last.last < _FEW:
            # What C++ threw, and the stack that faulthandler tells as it aborts.
            self.found[-1] = replace(last, frames=raised.frames, last=raised.last)
        else:
            self.found.append(raised)

    def _begin(self, number: int, before: str) -> None:
        prefix, is_logged, worker, width = before, bool(_LOGGED.search(self._before)), "", 0
        if before.endswith("Original "):  # torch/_utils.py, ExceptionWrapper
            prefix, worker = before.removesuffix("Original "), self._worker(number)
        elif before.endswith("Exception Group "):
            prefix = before.removesuffix("Exception Group ").replace("+", "|")
        elif before.endswith("traceback : "):  # a report of torchrun's (errors/__init__.py)
            prefix, is_logged = before.removesuffix("traceback : "), True
        elif (box := before.rstrip("─━- "))[-1:] in ("╭", "┌", "+"):  # rich draws a box
            prefix, width = box[:-1], len(self._line)
        same = self._open.get(prefix)
        if same is not None and same.reopened is not None:
            self._close_reopened(same)
            same = None
        if same is not None and not worker and number - same.first < _PATIENCE:
            same.heads += 1
            return
        self._begin_at(prefix, number, is_logged, worker).width = width

    def _begin_at(
        self, prefix: str, number: int, is_logged: bool = False, worker: str = ""
    ) -> _Open:
        if len(self._open) >= _MOST_OPEN:
            self._open.clear()
        root = self._linked.pop(prefix, None)
        self._open[prefix] = _Open(prefix, number, is_logged, root, worker=worker)
        return self._open[prefix]

    def _worker(self, number: int) -> str:
        """In which helper an exception was raised that is told of in the message before."""
        outer = self.found[-1] if self.found else None
        if outer is None or number - outer.last > 2:
            return ""
        self.found.pop()
        return outer.message.partition(" in ")[2].rstrip(".") or "a worker"

    def _continue(self, number: int, line: str) -> bool:
        """Whether the line belongs to a traceback that is open."""
        for prefix in sorted(self._open, key=len, reverse=True):
            if line.startswith(prefix) and self._add(self._open[prefix], number, line):
                return True
        return False

    def _add(self, each: _Open, number: int, line: str) -> bool:
        rest = line[len(each.prefix) :]
        if (frame := parse_frame(rest)) is not None:
            if frame not in each.frames[-each.heads :] and len(each.frames) < _MOST_FRAMES:
                each.frames.append(frame)
            return True
        if (source := parse_source(rest)) is not None and each.frames:
            if source and not each.frames[-1].source:
                each.frames[-1] = replace(each.frames[-1], source=source)
            return True
        if not rest.strip() or rest.startswith("  [Previous line repeated"):
            return True
        if each.reopened is not None:
            self._close_reopened(each)
            return False
        ended = _RAISED.fullmatch(rest)
        if ended is None or not each.frames:
            each.strangers += 1
            if each.strangers > _PATIENCE:
                del self._open[each.prefix]
            return False
        self._close(each, number, ended[1], (ended[2] or "").strip())
        text = rest.rstrip()
        width = max(each.width - len(each.prefix), 0)
        self._message = Message(self.found[-1].message, text.endswith(":"), width, column=len(text))
        return True

    def _close_reopened(self, each: _Open) -> None:
        """Of what was read already there are no more frames."""
        del self._open[each.prefix]
        if each.reopened is not None:
            self.found.append(replace(each.reopened, frames=tuple(each.frames)))

    def _close(self, each: _Open, number: int, name: str, message: str) -> None:
        raised = RaisedException(
            name, message, tuple(each.frames), each.prefix, each.first, number,
            each.is_logged, each.worker, each.root,
        )  # fmt: skip
        root = raised.root
        if root is not None and (root.text == raised.text or message.startswith(_WORKER_GONE)):
            # Of another process, and once more where that was waited for.
            self.found = [other for other in self.found if other is not root]
            worker = "" if message.startswith(_WORKER_GONE) else root.worker or "another process"
            raised = replace(
                raised, message=root.message, frames=(*raised.frames, *root.frames), worker=worker,
                root=root.root,
            )  # fmt: skip
        self.found.append(raised)
        each.heads -= 1
        if not each.heads:
            del self._open[each.prefix]

    def _read_outside(self, number: int, line: str) -> None:
        """Outside of any traceback: what links two, begins one, or says more of one."""
        text = line.strip()
        if text.endswith((_CAUSE, _CONTEXT)):
            prefix = line[: line.find(_CAUSE if text.endswith(_CAUSE) else _CONTEXT)]
            same = (each for each in reversed(self.found[-8:]) if each.prefix == prefix)
            if (root := next(same, None)) is not None:
                self._linked[prefix] = root
        elif text == _FROM_USER_CODE and self.found:
            last = self.found.pop()
            reopened = self._begin_at(line[: line.find(_FROM_USER_CODE)], number)
            reopened.reopened, reopened.frames = last, list(last.frames)
        elif (at := line.find('  File "')) >= 0:
            # An error of syntax has no head, nor has a traceback whose beginning is cut off.
            self._add(self._headless(line[:at], number), number, line)
        elif self.found and _MEMBER.search(self._before):
            self._read_member(number, line)
        elif self.found and number - self.found[-1].last == 1:
            self._extend_message(line)

    def _read_member(self, number: int, line: str) -> None:
        """An exception of a group that was not raised itself, and so has no frames of its own."""
        margin, bar, rest = line.rpartition("| ")
        if (ended := _RAISED.fullmatch(rest.rstrip())) is not None:
            frames = self.found[-1].frames
            message = (ended[2] or "").strip()
            raised = RaisedException(ended[1], message, frames, margin + bar, number, number)
            self.found.append(raised)

    def _headless(self, prefix: str, number: int) -> _Open:
        """A traceback of which a line comes that begins like none that is open."""
        for key, each in self._open.items():
            if each.first == number - 1 and not each.frames:
                # Its head stands behind a progress bar, or in the message of a logger.
                del self._open[key]
                each.prefix, each.is_logged = prefix, each.is_logged or bool(_LOGGED.search(key))
                self._open[prefix] = each
                return each
        return self._begin_at(prefix, number)

    def _extend_message(self, line: str) -> None:
        """A message of several lines."""
        last = self.found[-1]
        if line.startswith(last.prefix) and self._message.continues(line[len(last.prefix) :]):
            message = self._message.text
            self.found[-1] = replace(last, message=message, last=last.last + 1)


@dataclass(slots=True)
class _Fatal:
    """A fatal error that faulthandler tells of, and the stack of the thread that had it."""

    prefix: str
    first: int
    what: str
    last: int
    is_reading: bool = False
    frames: list[Frame] = field(default_factory=list)

    def take(self, number: int, line: str) -> bool:
        """Whether there may be more of it."""
        rest = line.removeprefix(self.prefix)
        self.last = number
        if "(most recent call first)" in rest:
            self.is_reading = rest.startswith(("Current thread ", "Stack ("))
            return not self.frames or self.is_reading
        if self.is_reading and (frame := parse_frame(rest)) is not None:
            if len(self.frames) < _MOST_FRAMES:
                self.frames.append(frame)
            return True
        return number - self.first < _PATIENCE and not self.frames

    def raised(self) -> RaisedException:
        """The whole."""
        frames = tuple(reversed(self.frames))  # told innermost first
        return RaisedException(
            self.what, "", frames, self.prefix, self.first, self.last, is_native=True
        )


def lines_of_roots(found: Iterable[RaisedException]) -> set[int]:
    """Beginnings of those from which another one follows."""
    return {each.root.first for each in found if each.root is not None}
