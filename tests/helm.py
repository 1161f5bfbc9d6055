"""Helm's own engine, in a process of its own: a library or, failing that, a `helm` of the PATH."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tests.tools import missing

CHART = Path(__file__).parents[1] / "deploy/chart"
Object = dict[str, Any]
_RENDER = """
import json, sys
from helm_python.chart import Chart
from helm_python.errors import HelmValuesError
namespace, given = json.load(sys.stdin)
chart = Chart.load(sys.argv[1])
for values in given:
    try:
        merged = chart.merge_values(values)
        found = chart.render(merged, name="trainyard", namespace=namespace)
        print(json.dumps({"files": found}))
    except HelmValuesError as error:
        print(json.dumps({"refused": str(error)}))
"""
_LINT = """
import json, sys
from helm_python.chart import lint
print(json.dumps(lint(sys.argv[1], json.load(sys.stdin), strict=True)))
"""


class Refused(Exception):
    """Helm does not take the values."""


def render(given: Sequence[Mapping[str, Any]], namespace: str = "ops") -> list[list[Object]]:
    """The objects of the chart, for each of these values; raises Refused."""
    found = []
    for answer in asked(given, namespace):
        if isinstance(answer, Refused):
            raise answer
        found.append(answer)
    return found


def asked(
    given: Sequence[Mapping[str, Any]], namespace: str = "ops"
) -> list[list[Object] | Refused]:
    """The same, with what is refused in its place."""
    if importlib.util.find_spec("helm_python") is None:
        return [_template(values, namespace) for values in given]
    answers = map(json.loads, _run(_RENDER, [namespace, given]).splitlines())
    return [
        Refused(answer["refused"])
        if "refused" in answer
        else _objects("\n---\n".join(answer["files"].values()))
        for answer in answers
    ]


def lint(values: Mapping[str, Any]) -> str:
    """What Helm finds wrong with the chart and is more than a remark."""
    if importlib.util.find_spec("helm_python") is None:
        done = _helm("lint", "--strict", "--quiet", values=values)
        return done.stdout + done.stderr if done.returncode else ""
    found = json.loads(_run(_LINT, values))
    told = [each["error"] for each in found["messages"] if each["severity"] > 1]
    return "\n".join([*map(str, found["errors"]), *told])


def _run(script: str, given: Any) -> str:
    # A process of its own: Go's runtime brings threads and signal handlers.
    done = subprocess.run(
        [sys.executable, "-c", script, str(CHART)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _template(values: Mapping[str, Any], namespace: str) -> list[Object] | Refused:
    done = _helm("template", "trainyard", f"--namespace={namespace}", values=values)
    if done.returncode:
        return Refused(done.stderr)
    return _objects(done.stdout)


def _helm(*arguments: str, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    program = shutil.which("helm")
    if program is None:
        missing("neither helm-python-sdk (requirements/deploy.lock) nor helm is installed")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "values.yaml"
        file.write_text(yaml.safe_dump(dict(values)))
        command = [program, *arguments, str(CHART), "--values", str(file)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)


def _objects(text: str) -> list[Object]:
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]
