"""Kubernetes' own tests of kubectl (test/cmd, 1.20) against the embedded API server.

`test_cmd.sh` runs their sections. What fails is listed in `expected/test-cmd.toml`, with a reason;
one that is listed and passes fails the test as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tomllib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.embedded.kubectl import running_cluster
from tests.tools import kubectl_path, oldest_and_newest_kubectl, soak
from tools import kubernetes_tests

HERE = Path(__file__).parent
EXPECTED = HERE / "expected" / "test-cmd.toml"
ALL_SECONDS = 5400
"""Far beyond the four minutes that they take alone on a machine."""
COMMAND_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of an assertion: its name, whether it passed, and what it printed."""

    name: str
    passed: bool
    printed: str


def verdicts(log: str) -> list[Verdict]:
    """What `test_cmd.sh` told, in its order; of a line that runs more than once, numbered."""
    found: list[Verdict] = []
    seen: Counter[str] = Counter()
    printed: list[str] = []
    for line in log.splitlines():
        told = re.fullmatch(r"## (passed|failed|ended)\t(.*)", line)
        if told is None:
            printed.append(line)
            continue
        if told[1] != "ended":
            name = told[2].replace("\t", " ")
            seen[name] += 1
            times = f" #{seen[name]}" if seen[name] > 1 else ""
            found.append(Verdict(name + times, told[1] == "passed", "\n".join(printed[-30:])))
        printed.clear()
    return found


def prepare(source: Path, folder: Path, kubectl: str) -> dict[str, str]:
    """Their source and a kubectl in `folder`, for `test_cmd.sh`; the environment for it."""
    copy = folder / "source"
    shutil.copytree(source, copy)  # some write to where they are
    for path in (copy / "hack/testdata", copy / "test/cmd"):
        for file in filter(Path.is_file, path.rglob("*")):
            # Their service network is 10.0.0.0/24.
            file.write_bytes(file.read_bytes().replace(b"10.0.0.", b"10.96.0."))
    for name in ("bin", "temp"):
        (folder / name).mkdir()
    program = folder / "bin/kubectl"
    # Newer ones print managedFields only when asked to.
    program.write_text(
        f"""#!/bin/sh
case "$*" in *managedFields*) set -- "$@" --show-managed-fields ;; esac
exec {shutil.which("timeout")} {COMMAND_SECONDS} {shlex.quote(kubectl)} "$@"
"""
    )
    program.chmod(0o755)
    return {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "TERM": "dumb",
        "HOME": str(folder / "temp"),
        "TMPDIR": str(folder / "temp"),
        "KUBE_TEMP": str(folder / "temp"),
        "KUBECONFIG": str(folder / "temp/config"),
        "KUBECTL_FOLDER": str(folder / "bin"),
    }


async def run_sections(folder: Path, environment: dict[str, str]) -> str:
    """All that they print, in a folder that is prepared."""
    log = folder / "test-cmd.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *("bash", str(HERE / "test_cmd.sh")),
            cwd=folder / "source",
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(ALL_SECONDS):
                await process.wait()
        finally:  # their proxies too
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return log.read_text(errors="replace")


def minor(kubectl: str) -> int:
    """33 of a kubectl 1.33."""
    text = subprocess.check_output(
        [kubectl, "version", "--client", "--output=json"], text=True, timeout=COMMAND_SECONDS
    )
    return int(json.loads(text)["clientVersion"]["minor"].rstrip("+"))


def listed(kubectl: str) -> dict[str, str]:
    """The names of what is expected to fail with this kubectl, and why."""
    version = minor(kubectl)
    cases = tomllib.loads(EXPECTED.read_text())["case"]
    reasons = {
        case["name"]: case["reason"]
        for case in cases
        if int(case.get("since", "1.0").removeprefix("1.")) <= version
    }
    assert len({case["name"] for case in cases}) == len(cases), "something is listed twice"
    return reasons


@pytest.mark.parametrize("version", oldest_and_newest_kubectl())
async def test_only_what_is_listed_fails(version: str, tmp_path: Path) -> None:
    if not soak(0, 1):
        pytest.skip("four minutes: a part of the soak")
    source = kubernetes_tests.find()
    if source is None:
        pytest.skip(kubernetes_tests.HOW)
    kubectl = kubectl_path(version)
    environment = prepare(source, tmp_path, kubectl)
    token = tmp_path / "token"
    token.write_text("admin-token")
    token.chmod(0o600)
    async with running_cluster(kubectl, tmp_path) as cluster:
        config = yaml.safe_load(Path(cluster.environment["KUBECONFIG"]).read_text())
        port = urlsplit(config["clusters"][0]["cluster"]["server"]).port
        log = await run_sections(tmp_path, {**environment, "SECURE_API_PORT": str(port)})
    found, expected = verdicts(log), listed(kubectl)
    failed = {each.name: each.printed for each in found if not each.passed}
    print(f"{len(found)} assertions, {len(failed)} failed, {len(expected)} are expected to")
    news = [f"{name}\n{failed[name]}" for name in failed if name not in expected]
    assert not news, "\n\n".join(["not on the list:", *news])
    stale = [name for name in expected if name not in failed]
    assert not stale, "\n".join(["passed, or did not run: take it off the list", *stale])
    assert "## ended\tkubectl_debug_node\t" in log, "they ended early"
