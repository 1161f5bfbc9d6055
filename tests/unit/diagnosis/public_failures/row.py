"""One failure as people report it in public, and what an expert would say of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_ON_RANK_1 = """\
import os, time
if os.environ["RANK"] != "1":
    time.sleep(3600)
"""
TOGETHER = """\
import datetime, os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
rank = dist.get_rank()
x = torch.ones(4)
dist.all_reduce(x)
"""
"""Ranks that have met."""
NOT_THE_CODE = r"correct \S+\.py, line"
"""Where the program is right, and what is around it is not."""
ANYTHING = ()


@dataclass(frozen=True)
class PublicFailure:
    """A failure, with what its card has to say; all words are regular expressions."""

    name: str
    script: str
    """Of `train.py`."""
    cause: tuple[str, ...]
    """Each in what the card tells of the end, its reason and what that means."""
    line: str = ""
    """In the user's own line that the card has to show; nowhere else."""
    remedy: tuple[str, ...] = ()
    """Each in the remedy; where there is none, it is to name that line."""
    never: tuple[str, ...] = ()
    """Not in the card."""
    who: str = "worker-0"
    """As the card has to name it."""
    launcher: str = "plain"
    replicas: int = 1
    processes: int = 1
    beside: Mapping[str, str] = field(default_factory=dict)
    """Other files of its folder."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the script, as `trainyard run` takes them."""
    container: Mapping[str, Any] = field(default_factory=dict)
    """Added to each training container."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Added to the pods' spec."""

    @property
    def place(self) -> str:
        """The file and number of the user's line."""
        for file, text in {"train.py": self.script, **self.beside}.items():
            for number, source in enumerate(text.split("\n"), 1):
                if self.line in source:
                    return f"{file}:{number}"
        raise AssertionError(f"{self.name}: no line has {self.line!r}")

    @property
    def remedies(self) -> tuple[str, ...]:
        """What the remedy has to say."""
        if self.remedy or not self.line:
            return self.remedy
        file, _, number = self.place.partition(":")
        return (rf"{re.escape(file)}, line {number}\b",)


def rank_1(name: str, script: str, *rest: Any, **more: Any) -> PublicFailure:
    """Rank 1 of two replicas fails; the other would go on."""
    known = {"who": "worker-1", "replicas": 2, **more}
    return PublicFailure(name, _ON_RANK_1 + script, *rest, **known)


def ranks(name: str, script: str, *rest: Any, **more: Any) -> PublicFailure:
    """Two ranks of torchrun in one replica that have met."""
    known = {"who": "rank 1 on worker-0", "launcher": "torchrun", "processes": 2, **more}
    return PublicFailure(name, TOGETHER + script, *rest, **known)
