"""A crash of native code is told of the attempt that it ended, and of no other."""

from __future__ import annotations

import json

from tests.embedded.command_line import CommandLine, Object, job

ONCE = """\
import ctypes, pathlib
seen = pathlib.Path("seen")
if seen.exists():
    raise SystemExit(3)
seen.touch()
ctypes.string_at(0)
"""
RESTARTS = {
    "torchrun": {"torchrunConfig": {"enabled": True, "maxRestarts": 1}},
    "in-place": {"runPolicy": {"restartMode": "InPlace", "backoffLimit": 1}},
}


def test_the_next_attempt_in_the_same_container_does_not_end_by_the_crash_before(
    trainyard: CommandLine,
) -> None:
    trainyard.run("up")
    jobs = []
    for name, options in RESTARTS.items():
        folder = trainyard.folder / name
        folder.mkdir()
        (folder / "once.py").write_text(ONCE)
        words = {"args": ["once.py"]} if name == "torchrun" else {"command": ["python", "once.py"]}
        container = {**words, "workingDir": str(folder)}
        policy = "Never" if name == "torchrun" else "OnFailure"
        jobs.append(job(name, policy=policy, container=container, **options))
    trainyard.run("submit", "-f", trainyard.manifest("jobs.yaml", *jobs))
    trainyard.run("wait", *RESTARTS, code=1)
    causes = {
        name: [(each["exitCode"], each["cause"]) for each in attempts_of(trainyard, name)]
        for name in RESTARTS
    }
    assert causes == {
        "torchrun": [(3, "exit code 3")],
        "in-place": [(139, "Segmentation fault (once.py:6)"), (3, "exit code 3")],
    }


def attempts_of(trainyard: CommandLine, name: str) -> list[Object]:
    found: list[Object] = json.loads(trainyard.run("show", name, "-o", "json"))["status"][
        "attempts"
    ]
    return found
