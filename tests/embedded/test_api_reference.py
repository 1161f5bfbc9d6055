"""Every example of the reference of the Python API is run, and prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine, job, shell, until

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PRINTED = re.compile(r"\bprint\(.*\)  # (.*)$", re.MULTILINE)


def test_every_example_prints_what_it_says(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    hello = job("hello", shell("echo hello; exit 0"))
    line.manifest("job.yaml", hello)
    (tmp_path / "tell.py").write_text("import sys\nprint(sys.argv[1:])\n")
    text = "\n".join(_BLOCK.findall(_PAGE.read_text()))
    wanted = _PRINTED.findall(text)
    (tmp_path / "examples.py").write_text(text)
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", "examples.py"],
            cwd=tmp_path,
            env=line.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        printed = iter(done.stdout.splitlines())  # among what the replicas wrote
        assert "[worker-1] ['--steps', '3']" in done.stdout
        assert [text for text in wanted if text not in printed] == [], done.stdout
        until(lambda: not line.processes(), "nothing is left of its clusters")
    finally:
        line.kill_everything()
