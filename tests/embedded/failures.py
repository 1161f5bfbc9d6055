"""Ways in which training fails, as scripts; what a failure card has to say of each.

Where it can be so, rank 1 fails and rank 0 goes on or waits for it: who is to blame is then known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LAUNCHERS = ("plain", "torchrun", "deepspeed", "colossalai")
_ON_RANK_1 = """\
import os, time
if os.environ["RANK"] != "1":
    time.sleep(3600)
"""
_TOGETHER = """\
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(1000):
    loss = torch.tensor(float(step))
    if step == 3 and dist.get_rank() == 1:
        {failure}
    dist.all_reduce(loss)
"""


@dataclass(frozen=True)
class Failure:
    """A way to fail, and what is to be told of it."""

    name: str
    script: str
    reason: str
    """In the last twelve lines, and there once."""
    place: str = ""
    """The user's own line, as file and number."""
    source: str = ""
    also: str = ""
    """In the cause or the remedy."""
    who: str = "worker-1"
    """Who is to blame; empty where all ranks fail."""
    launchers: tuple[str, ...] = LAUNCHERS
    beside: Mapping[str, str] = field(default_factory=dict)
    """Other files of the script's folder."""
    script_options: Mapping[str, Any] = field(default_factory=dict)
    container: Mapping[str, Any] = field(default_factory=dict)
    """What is added to the container of every replica."""


def rank_1(name: str, script: str, reason: str, *rest: str, **more: Any) -> Failure:
    """Only rank 1 fails, by a script that the others do not get to."""
    return Failure(name, _ON_RANK_1 + script, reason, *rest, **more)


FAILURES = [
    rank_1("exception", 'rate = float("fast")\n', "ValueError: could not convert string to float",
           "exception.py:4", 'rate = float("fast")', "correct exception.py, line 4"),
    rank_1("module", "import helper\nhelper.work()\n", "KeyError: 'momentum'",
           "helper.py:2 in work", 'return {}["momentum"]', "correct helper.py, line 2",
           beside={"helper.py": 'def work():\n    return {}["momentum"]\n'}),
    rank_1("loader", """\
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): raise ValueError(f"sample {index} is broken")
for batch in DataLoader(Data(), num_workers=1, multiprocessing_context="fork"):
    pass
""", "ValueError: sample 0 is broken", "loader.py:7 in __getitem__", "def __getitem__",
           "DataLoader worker process 0"),
    rank_1("imports", "import nosuchpackage.deep\n", "No module named 'nosuchpackage'",
           "imports.py:4", "import nosuchpackage.deep", "the Python package nosuchpackage is not"),
    rank_1("syntax", "import bad\n", "SyntaxError: invalid syntax", "bad.py:2", "def f(:",
           "correct bad.py, line 2", beside={"bad.py": "\ndef f(:\n    pass\n"}),
    Failure("unreadable", "\ndef f(:\n    pass\n", "SyntaxError: invalid syntax",
            "unreadable.py:2", "def f(:", "correct unreadable.py, line 2", ""),
    rank_1("oncuda", "import torch\nx = torch.zeros(3)\nx = x.cuda()\n",
           "Torch not compiled with CUDA enabled", "oncuda.py:6", "x = x.cuda()",
           "there is no GPU where it runs"),
    rank_1("memory", "held = bytearray(600 << 20)\n", "it used more memory than it may",
           also="resources.limits.memory",
           container={"resources": {"limits": {"memory": "400Mi"}}}, launchers=("plain",)),
    rank_1("segfault", """\
import ctypes, faulthandler
faulthandler.enable()
def crash():
    ctypes.string_at(0)
crash()
""", "Segmentation fault", "segfault.py:7 in crash", also="look at what that line calls"),
    rank_1("crash", "import ctypes\nctypes.string_at(0)\n", "Segmentation fault", "crash.py:5",
           also="look at what that line calls"),
    rank_1("abort", "os.abort()\n", "Aborted", "abort.py:4",
           also="look at what that line calls"),
    Failure("assertion", _TOGETHER.format(failure='assert loss < 3, f"loss is {loss}"'),
            "AssertionError: loss is 3.0", "assertion.py:6", "assert loss < 3"),
    Failure("peer", _TOGETHER.format(failure="os.kill(os.getpid(), 9)"),
            "it was killed (SIGKILL)", also="dmesg"),
    rank_1("port", """\
import socket
one, two = socket.socket(), socket.socket()
one.bind(("127.0.0.1", 0)); one.listen()
two.bind(one.getsockname())
""", "Address already in use", "port.py:7", "two.bind(one.getsockname())", "another port"),
    Failure("world", """\
import datetime, os, torch.distributed as dist
size, wait = int(os.environ["WORLD_SIZE"]) + 3, datetime.timedelta(seconds=20)
os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
dist.init_process_group("gloo", "env://", wait, size, int(os.environ["RANK"]))
""", "DistStoreError: ", "world.py:4", "dist.init_process_group",
            "leave world_size to the launcher's WORLD_SIZE", "", launchers=("plain", "deepspeed")),
    rank_1("missing", 'rows = open("/data/train.csv")\n',
           "No such file or directory: '/data/train.csv'", "missing.py:4",
           'rows = open("/data/train.csv")', "check the path"),
    rank_1("claim", 'rows = open("/claimed/train.csv")\n',
           "No such file or directory: '/claimed/train.csv'", "claim.py:4", "rows = open",
           "--volume CLAIM=DIR", script_options={"claim": "/claimed"}),
    Failure("nofile", "", "nowhere.py", also="check", who="",
            script_options={"target": "nowhere.py"}, launchers=("plain", "torchrun")),
    Failure("nomodule", "", "the Python package nosuchmodule is not there", also="install it",
            who="", script_options={"target": "nosuchmodule", "form": "module"}),
    Failure("nocommand", "", "the command trian does not exist", also="check its spelling", who="",
            script_options={"target": "trian", "form": "program", "interpreter": ""},
            launchers=("plain",)),
    rank_1("silent", "raise SystemExit(3)\n", "it ended with exit code 3, and wrote nothing",
           also="have the program say why"),
    Failure("grown", _TOGETHER.format(
                failure="import time; time.sleep(5); held = bytearray(3 << 30)"
            ), "it used more memory than it may", also="rank 1 stood at grown.py:6 in <module>",
            container={"resources": {"limits": {"memory": "1500Mi"}}}, launchers=("plain",)),
    Failure("exits", _TOGETHER.format(failure="os._exit(3)"),
            "it ended with exit code 3, and wrote nothing",
            also="rank 1 stood at exits.py:6 in <module>"),
    rank_1("words", 'raise SystemExit("no checkpoint in /ckpt: give --resume")\n',
           "no checkpoint in /ckpt: give --resume", also="with these words its program ended"),
    rank_1("full", 'with open("/dev/full", "w") as out:\n    out.write("x" * 100000)\n',
           "No space left on device", "full.py:5", "out.write", "make room"),
    rank_1("chained", """\
try:
    {}["lr"]
except KeyError as error:
    raise RuntimeError("the configuration is incomplete") from error
""", "RuntimeError: the configuration is incomplete", "chained.py:7", "raise RuntimeError",
           "it followed from KeyError: 'lr' (chained.py:5)"),
    rank_1("group", 'raise ExceptionGroup("some", [OSError("gone")])\n', "OSError: gone",
           "group.py:4", "raise ExceptionGroup"),
    rank_1("arguments", """\
import argparse
argparse.ArgumentParser().parse_args(["--epochs", "3"])
""", "does not know the arguments --epochs 3", also="before the script"),
]  # fmt: skip
