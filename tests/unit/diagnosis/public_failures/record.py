"""Runs the hundred on this machine by `trainyard run`, and keeps what a card is made of.

`python -m tests.unit.diagnosis.public_failures.record` writes `recorded` anew, or of it those
whose kind and name have all the given words in them. It wants torch, deepspeed, mpirun, sshd and
root, and takes some minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from tests.embedded.command_line import CommandLine
from tests.embedded.test_failure_cards import containers
from tests.unit.diagnosis.public_failures.row import PublicFailure
from tests.unit.diagnosis.public_failures.table import FOLDER, TABLE, recorded
from trainyard.api.async_client import AsyncClient
from trainyard.api.scripts import script_objects
from trainyard.diagnosis import Situation
from trainyard.kinds.kind_registry import kinds_by_launcher
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.script import Script

AT_ONCE = 2
LONGEST_SECONDS = 300.0
_READ = labels.ON_PODS
"""Annotations that say something of a job's life; the others are of this machine."""


def main() -> None:
    """Write the files."""
    words = sys.argv[1:]
    wanted = [
        (kind, row)
        for kind, rows in TABLE.items()
        for row in rows
        if all(word in f"{kind} {row.name}" for word in words)
    ]
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        line = CommandLine(Path(folder))
        line.environment["PATH"] = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        line.run("up")
        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                ends = [(kind, row, pool.submit(play, line, row)) for kind, row in wanted]
                for kind, row, end in ends:
                    if error := end.exception():
                        print(f"{kind}: {row.name} was not recorded: {error!r}", flush=True)
                    else:
                        keep(kind, row, end.result())
        finally:
            line.run("down", code=None)
            line.kill_everything()


def play(line: CommandLine, row: PublicFailure) -> str:
    """Run it to its end; what is known of it then, as JSON."""
    name = re.sub("[^a-z0-9]+", "-", row.name.lower()).strip("-")
    folder = line.folder / name
    for file, text in {"train.py": row.script, **row.beside}.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, newline="")
        (folder / file).chmod(0o600 if file == "secret.csv" else 0o644)
    (folder / "job.yaml").write_text(manifest(row, name))
    with line.running("run", "--keep", "-f", str(folder / "job.yaml")) as process:
        process.communicate(timeout=LONGEST_SECONDS)
    found = asyncio.run(situation(line, name))
    line.run("delete", name, "--wait")
    text = json.dumps(stored(found), ensure_ascii=False)
    for real, told in scrubbed(folder, line):
        text = text.replace(real, told)
    return text


def scrubbed(folder: Path, line: CommandLine) -> list[tuple[str, str]]:
    """What is of this machine alone, and what stands for it."""
    packages = {path.parents[2] for path in map(Path, sys.path) if path.name == "site-packages"}
    return [
        (str(folder), "/home/ada/digits"),
        (str(line.state), "/home/ada/.trainyard"),
        *((str(path), "/venv") for path in sorted(map(str, packages))),
        (sys.prefix, "/venv"),
        (sys.base_prefix, "/usr"),
        (str(Path(sys.executable).resolve().parents[1]), "/usr"),
        (str(Path.cwd()), "/home/ada"),
        (socket.gethostname(), "ada"),
    ]


def manifest(row: PublicFailure, name: str) -> str:
    """Its job."""
    options: dict[str, Any] = {"target": "train.py", **row.options}
    text = script_objects.text(
        Script(
            name=name,
            launcher=row.launcher,
            replicas=row.replicas,
            processes=row.processes,
            image=kinds_by_launcher()[row.launcher].image,
            **options,
        )
    )
    job = yaml.safe_load(text)
    for container in containers(job):
        container.update(row.container)
    for pod in pod_specs(job):
        pod.update(row.pod)
    return yaml.safe_dump(job)


def pod_specs(node: Any) -> list[dict[str, Any]]:
    """Every pod spec of a manifest."""
    if isinstance(node, list):
        return [spec for value in node for spec in pod_specs(value)]
    if not isinstance(node, dict):
        return []
    return [node] if "containers" in node else pod_specs([*node.values()])


async def situation(line: CommandLine, name: str) -> Situation:
    """What `explain` and the card are made of."""
    os.environ["TRAINYARD_STATE_DIR"] = str(line.state)
    async with AsyncClient(cluster="running") as client:
        return (await client.explain(name)).situation


def stored(known: Situation) -> dict[str, Any]:
    """A situation as JSON has it."""
    found = {
        "job": known.job.obj,
        "pods": [pod.obj for pod in known.pods],
        "events": list(known.events),
        "now": known.now.isoformat(),
        "logs": {
            pod: {"lines": list(tail.lines), "times": list(tail.times)}
            for pod, tail in known.logs.items()
        },
    }
    for each in (found["job"], *found["pods"], *found["events"]):
        metadata = each["metadata"]
        metadata.pop("managedFields", None)
        kept = {key: text for key, text in metadata.get("annotations", {}).items() if key in _READ}
        metadata.pop("annotations", None)
        metadata |= {"annotations": kept} if kept else {}
    for container in containers(found["pods"]):
        container.pop("env", None)
    return found


def keep(kind: str, row: PublicFailure, end: str) -> None:
    """Put it to the others of its kind."""
    known = {**recorded(kind), row.name: json.loads(end)}
    ends = (
        f"{json.dumps(each.name)}: {json.dumps(known[each.name], ensure_ascii=False)}"
        for each in TABLE[kind]
        if each.name in known
    )
    (FOLDER / f"{kind}.json").write_text("{\n" + ",\n".join(ends) + "\n}\n")
    print(f"{kind}: {row.name}", flush=True)


if __name__ == "__main__":
    main()
