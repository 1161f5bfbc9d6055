"""What needs no embedded cluster works on macOS and Windows too; the rest says so in a sentence.

Tried without the modules and calls that those systems lack: no module on the way of a client may
import one (decision 155). `tests/embedded/test_other_systems.py` speaks to a cluster so.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_WORKS = (
    ("run", "--help"),
    ("validate", "-f", "examples/ddp-torchrun/job.yaml"),
    ("init", "--for-cluster", "--image", "any", "examples/ddp-torchrun/train.py"),
)
_NEEDS_LINUX = (("run", "examples/ddp-torchrun/train.py"), ("up",), ("list",), ("doctor",))


def _run(platform: str, *arguments: str) -> tuple[int, str]:
    """The exit code, and what was printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.other_system", platform, *arguments],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_what_needs_no_embedded_cluster_needs_no_linux(platform: str) -> None:
    for arguments in _WORKS:
        code, output = _run(platform, *arguments)
        assert code == 0, (arguments, output)


@pytest.mark.parametrize(
    ("platform", "sentence"),
    [
        ("darwin", "this is macOS: name a cluster with --kubeconfig FILE or --context NAME"),
        ("win32", "this is Windows: work in WSL 2, or name a cluster with --kubeconfig FILE"),
    ],
)
def test_what_needs_one_says_so_in_a_sentence(platform: str, sentence: str) -> None:
    for arguments in _NEEDS_LINUX:
        code, output = _run(platform, *arguments)
        assert (code, len(output.splitlines())) == (1, 1), (arguments, output)
        assert output.startswith("error: the embedded cluster needs Linux"), output
        assert sentence in output
