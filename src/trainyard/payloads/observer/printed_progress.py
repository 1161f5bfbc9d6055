"""Reads the progress of a training from what it prints: lines, and bars of tqdm.

Only words that can mean nothing else count, of a process that trains: no progress is better than a
wrong one. Mounted into the user's image: standard library, Python 3.8.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from typing import Any

EVERY_SECONDS = 2.0
SOURCE = "Output"
MOST_WRITES, LONGEST_WRITE = 512, 2000
"""What is kept between two looks."""
LONGEST_LINE, MOST_LINES = 500, 20
_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_OTHERS = re.compile(
    r"(?i)\b(?:best|load\w*|restor\w*|resum\w*|sav(?:e|ed|ing)|checkpoints?|early stop\w*|patience"
    r"|sanity|predict\w*|infer\w*|download\w*|prepar\w*|generat\w*|build\w*|compil\w*|install\w*|extract\w*"
    r"|process(?:ing)?|episodes?|namespace|config\w*|args|arguments)\b"
    r"|\b(?:val|valid\w*|eval\w*|test(?:ing)?)\b(?![ _.-]?(?:loss|acc|ppl))"
)
_METRIC = re.compile(
    r"(?i)loss|\blr\b|learning.rate|\bacc(?:uracy)?\b|\bppl\b|grad|(?:it|step)s?/s"
)
_STEP = re.compile(
    r"(?i)(?<![\w./-])(?:(?:global|train(?:ing)?|optim(?:izer)?)[ _])?"
    r"(?:steps?|iter(?:s|ation)?s?|num_updates)(?:\(train\))?\s*[:=#]?\s*[\[(]?\s*(\d[\d,_]*)"
    r"(?:\s*(?:/|of)\s*(\d[\d,_]*))?(?![\w.%-])(?!\s*(?:ms|s|sec\w*|min\w*|x|[kmg]i?b)\b)"
)
_GLOBAL = re.compile(r"(?i)global|num_updates")
_EPOCH = re.compile(
    r"(?i)(?<![\w./-])(?:train(?:ing)?[ _])?epoch(?:\(train\))?['\"]?\s*[:=#]?\s*[\[(]?\s*"
    r"(\d+(?:\.\d+)?)(?!\w|\.\d)(?!\s*(?:ms|s|sec\w*|min\w*|x|%)(?!\w))"
)
_TIMM = re.compile(r"Train: (\d+) \[ *\d+/\d+ ")
_BAR = re.compile(
    r"^(?P<name>[^|]*?):?\s*\d{1,3}%\|[^|]*\|\s*(?P<n>\d+)/(?P<total>\d+)"
    r" \[[\d:?]+<[\d:?]+, *[\d.?]+ ?(?P<unit>[^,\]\d. ]+)"
)
_BAR_UNITS = re.compile(r"(?i)(?:it|steps?|iter\w*|batch(?:es)?)/s|s/(?:it|steps?|iter\w*|batch)")
_STEP_BARS = re.compile(r"(?i)^(?:(?:training|train|global) )?(?:steps|iterations|iters)$")
"""Bars of these names count the steps of the whole training."""


class PrintedProgress:
    """How far a training is by its output."""

    def __init__(self) -> None:
        self._writes: deque[str] = deque(maxlen=MOST_WRITES)
        self._rest = ""
        self.is_training = False
        """Whether the process was seen to train."""
        self.step = self.total = 0
        self.epoch = -1.0
        self._bar_total = self._bar_last = self._bar_before = 0
        self._names_steps = False
        """Whether a line or a bar told the step by its name, which an unnamed bar may not be."""

    def listen(self) -> None:
        """Keep what is written to the standard streams from now on."""
        for stream in (sys.stdout, sys.stderr):
            try:
                self._listen_to(stream)
            except (AttributeError, TypeError):  # there is none, or it is of another class
                continue

    def _listen_to(self, stream: Any) -> None:
        write, keep = stream.write, self._writes.append

        def write_and_keep(text: str) -> Any:
            if type(text) is str:
                keep(text[-LONGEST_WRITE:])
            return write(text)

        stream.write = write_and_keep

    def is_due(self, seconds: float) -> bool:
        """Whether to read on so long after the last time."""
        return seconds > EVERY_SECONDS

    def read_new(self) -> bool:
        """Read on; whether there was anything new. What comes before a training waits for it."""
        before = self.step, self.total, self.epoch
        texts = [self._rest]
        while self._writes:
            texts.append(self._writes.popleft())
        lines = re.split(r"[\r\n]", "".join(texts))
        if self.is_training:
            # A bar is on a line that is never finished.
            for line in lines:
                self.read_line(_COLORS.sub("", line[-LONGEST_LINE:]).strip())
            lines = lines[-1:]
        self._rest = "\n".join(line[-LONGEST_LINE:] for line in lines[-MOST_LINES:])
        return before != (self.step, self.total, self.epoch)

    def read_line(self, line: str) -> None:
        """Take the position from a line of a training, if it tells any."""
        if (bar := _BAR.match(line)) is not None:
            self._read_bar(bar)
            return
        step, epoch = _STEP.search(line), _TIMM.search(line) or _EPOCH.search(line)
        if "%|" in line:
            return
        if epoch is not None and not _OTHERS.search(line[: epoch.start()]):
            self.epoch = max(self.epoch, float(epoch[1]))
        if step is None or _OTHERS.search(line) or not (step[2] or _METRIC.search(line)):
            return
        # Beside an epoch, or after one that came first, a step is one of the epoch's.
        is_after = self.epoch >= 0 and (step[2] is not None or not self._names_steps)
        is_of_epoch = epoch is not None or is_after
        if not is_of_epoch or _GLOBAL.match(step[0]):
            self._names_steps = True
            self._set_step(_number(step[1]), _number(step[2]))

    def _read_bar(self, bar: re.Match[str]) -> None:
        name, n, total = bar["name"].strip(), int(bar["n"]), int(bar["total"])
        if (epoch := _EPOCH.match(name)) is not None:
            self.epoch = max(self.epoch, float(epoch[1]))
        elif not _BAR_UNITS.fullmatch(bar["unit"]):
            return
        elif _STEP_BARS.match(name):
            self._names_steps = True
            self._set_step(n, total)
        elif not name and not self._names_steps and total > 1:
            self._read_unnamed_bar(n, total)

    def _read_unnamed_bar(self, n: int, total: int) -> None:
        """One that comes again is that of an epoch: how many of these there will be is not known.
        Others beside the first are of evaluations, mostly."""
        self._bar_total = self._bar_total or total
        if total != self._bar_total:
            return
        if n < self._bar_last:
            self._bar_before += total
        self._bar_last = n
        # That of transformers is of the whole training.
        is_whole = "transformers.trainer" in sys.modules and not self._bar_before
        self._set_step(self._bar_before + n, total if is_whole else 0)

    def _set_step(self, step: int, total: int) -> None:
        if step >= self.step and (not total or step <= total):
            self.step, self.total = step, total or self.total

    def status(self) -> dict[str, Any]:
        """As the channel takes it."""
        named = [("current_step", str(self.step))] if self.step > 0 else []
        named += [("total_steps", str(self.total))] if self.total > 0 else []
        named += [("current_epoch", f"{self.epoch:g}")] if self.epoch >= 0 else []
        return {
            "source": SOURCE,
            "metrics": [{"name": name, "value": value} for name, value in named],
        }


def _number(text: str | None) -> int:
    return int((text or "0").replace(",", "").replace("_", ""))
