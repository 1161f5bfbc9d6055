"""Write or verify ``src/trainyard/api/sync_client.py``: the asynchronous client's methods, to be
called without `await`.

Usage: ``python -m tools.sync_client [--check]``.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "src/trainyard/api"
_CLASSES = {
    "job_changes.py": "Changing",
    "job_queries.py": "Asking",
    "replica_usage.py": "Measuring",
    "recorded_jobs.py": "Repeating",
    "queues.py": "Queues",
}
_OF_COMMANDS = (
    "outcome",
    "failure",
    "log_blocks",
    "own_namespaces",
    "repetition",
    "submit_again",
)
"""What only those call who print."""
_HEAD = '''"""The client for those who do not await. Made by tools/sync_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from trainyard.api.blocking import Blocking
from trainyard.api.connection import JobName, Jobs
from trainyard.api.diagnosis_inputs import Explanation
from trainyard.api.job_manifests import Manifest
from trainyard.api.job_queries import Executed, LogLine
from trainyard.api.queues import Objects
from trainyard.api.recorded_jobs import Recorded
from trainyard.api.replica_usage import Usages
from trainyard.client.job_comparison import Comparison
from trainyard.client.job_view import Job
from trainyard.client.metrics_client import NodeUsage
from trainyard.client.object_views import Object
from trainyard.client.provenance_lookup import Past


class Client(Blocking):
    """Jobs of one cluster, as `AsyncClient` has them, in calls that wait for their results.

    They may be made in any thread, and where an event loop runs, as in a notebook; Ctrl-C ends
    them. `close()`, or the end of a `with`, ends the connection.
    """
'''


def methods() -> Iterator[ast.AsyncFunctionDef]:
    """What users of the asynchronous client may call, but for what it shows while it waits."""
    for file, name in _CLASSES.items():
        tree = ast.parse((FOLDER / file).read_text())
        (cls,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
        for node in cls.body:
            if isinstance(node, ast.AsyncFunctionDef) and is_public(node):
                yield node


def is_public(node: ast.AsyncFunctionDef) -> bool:
    """Whether callers who do not await have the method too."""
    is_ours = node.name.startswith("_") or node.name in _OF_COMMANDS
    return not is_ours and not node.decorator_list


def generated() -> str:
    """The module."""
    text = _HEAD
    for node in methods():
        text += f"\n{_method(node)}\n"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "format",
            "--stdin-filename",
            str(FOLDER / "sync_client.py"),
            "-",
        ],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _method(node: ast.AsyncFunctionDef) -> str:
    assert node.returns is not None
    returns, how = ast.unparse(node.returns), "_call"
    if (found := re.fullmatch(r"AsyncGenerator\[(.*)\]", returns)) is not None:
        returns, how = f"Iterator[{found[1]}]", "_iterate"
    arguments = ast.unparse(node.args).replace(" | ReadResult", "").replace(" | Named", "")
    positional = [each.arg for each in node.args.args[1:]]
    keywords = [f"{each.arg}={each.arg}" for each in node.args.kwonlyargs]
    doc = (ast.get_docstring(node, clean=False) or "").rstrip()
    end = "\n        " if "\n" in doc else ""
    passed = ", ".join([*positional, *keywords])
    return (
        f'    def {node.name}({arguments}) -> {returns}:\n        """{doc}{end}"""\n'
        f"        return self.{how}(self._client.{node.name}({passed}))"
    )


def main() -> int:
    """Write it, or with ``--check`` say whether it is stale."""
    path, text = FOLDER / "sync_client.py", generated()
    if path.exists() and path.read_text() == text:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{path} is stale; run: make generate")
        return 1
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
