"""A Python in a folder that only root may enter, as of pyenv or conda below `/root`.

Pods of other users run it, and see nothing else of that folder.
"""

from __future__ import annotations

import os
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.command_line import CommandLine, job

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
USER = 4242
SCRIPT = """\
import os, sys
print("runs", sys.prefix, os.getuid(), sorted(os.listdir(sys.argv[1])))
for path in sys.argv[2:]:
    try:
        open(path, "w")
    except OSError as error:
        print("refused", os.path.basename(path), error.strerror)
"""


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    (folder / "secret").write_text("x")
    (folder / "secret").chmod(0o644)
    venv.create(folder / "env", with_pip=False)
    return folder


def opened(path: Path) -> None:
    """Let everybody enter the folders of pytest's above a path, which are its owner's alone."""
    for folder in path.parents:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)


def in_environment(line: CommandLine, env: Path) -> CommandLine:
    line.environment |= {
        "VIRTUAL_ENV": str(env),
        "PATH": f"{env}/bin:{line.environment['PATH']}",
    }
    return line


def asks(closed: Path, **context: Any) -> dict[str, Any]:
    words = [str(closed), str(closed / "secret"), str(closed / "env" / "new")]
    return job("closed", ["python", "-c", SCRIPT, *words], container={"securityContext": context})


def test_another_user_runs_a_python_that_only_root_can_reach(
    trainyard: CommandLine, closed: Path
) -> None:
    opened(closed)
    line = in_environment(trainyard, closed / "env")
    output = line.run("run", "-f", line.manifest("m.yaml", asks(closed, runAsUser=USER)))
    assert f"[worker-0] runs {closed}/env {USER} ['env']" in output
    assert "refused secret Permission denied" in output
    assert "refused new Read-only file system" in output
    (warning,) = [text for text in output.splitlines() if "may not enter" in text]
    assert f"user {USER} may not enter" in warning
    assert f"{closed}/env" in warning
    assert sorted(os.listdir(closed)) == ["env", "secret"]


def test_root_sees_all_of_it(trainyard: CommandLine, closed: Path) -> None:
    opened(closed)
    line = in_environment(trainyard, closed / "env")
    output = line.run("run", "-f", line.manifest("m.yaml", asks(closed)))
    assert f"[worker-0] runs {closed}/env 0 ['env', 'secret']" in output
    assert "may not enter" not in output


def test_a_closed_working_folder_is_named_and_not_tried_again(
    trainyard: CommandLine, closed: Path
) -> None:
    opened(closed)
    line = in_environment(trainyard, closed / "env")
    asked = {**asks(closed, runAsUser=USER)}
    (replica,) = asked["spec"]["replicaSpecs"]
    replica["restartPolicy"] = "OnFailure"
    replica["template"]["spec"]["containers"][0]["workingDir"] = str(closed)
    output = line.run("run", "-f", line.manifest("m.yaml", asked), code=1)
    assert f"user {USER}, as whom it runs, may not enter {closed}, which is on" in output
    assert "restarts: " not in output
