"""Write down what a real API server answers: `python -m tests.differential.record`.

The control plane is the one that `tests/cluster` would take; with ``TRAINYARD_CURRENT_APISERVER=1``
it is a current one, which is asked about our own kinds.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tools.control_plane import HOW, find

from tests.cluster.current_plane import CurrentControlPlane
from tests.cluster.plane import ADMIN, RunningControlPlane
from tests.differential import managers
from tests.differential.asking import Answer, Ask, over, play
from tests.differential.cases import JSON, MERGE, cases
from tests.differential.newer import REFUSED_SAMPLES, SAMPLES, Fate, fate
from trainyard.kinds import server_compatibility

RECORDED = Path(__file__).parent / "recorded"
OF_SUBJECT = {"newer": SAMPLES, "refusable": REFUSED_SAMPLES}
_WITHOUT_TOKEN = b'{"automountServiceAccountToken": false}'
_SECONDS = 30.0
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def recording(subject: str, version: tuple[int, int]) -> Path:
    """Where the answers of a version are."""
    return RECORDED / f"{subject}-{version[0]}.{version[1]}.json"


def subjects(plane: RunningControlPlane) -> list[str]:
    """What it serves as its version does: one that rules in CEL bind serves our kinds."""
    has_cel = plane.version >= server_compatibility.CEL_SINCE
    return [*(["core", "managers"] if plane.is_one else []), *(["jobs"] if has_cel else [])]


def of_plane(plane: RunningControlPlane) -> AbstractContextManager[Ask]:
    """Requests of its administrator."""
    context = ssl.create_default_context(cafile=str(plane.authority))

    def connect() -> http.client.HTTPConnection:
        address = ("127.0.0.1", plane.port)
        return http.client.HTTPSConnection(*address, context=context, timeout=_SECONDS)

    return over(connect, {"Authorization": f"Bearer {ADMIN}"})


def namespace(ask: Ask, name: str) -> str:
    """A namespace in which pods can be made at once: their account needs no token."""
    ask("POST", "/api/v1/namespaces", json.dumps({"metadata": {"name": name}}).encode(), JSON)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    end = time.monotonic() + _SECONDS
    while ask("PATCH", account, _WITHOUT_TOKEN, MERGE)[0] != http.HTTPStatus.OK:
        if time.monotonic() > end:
            raise TimeoutError(f"{account} is not there after {_SECONDS:g} s")
        time.sleep(0.02)
    return name


def define(ask: Ask) -> None:
    """Have our kinds served."""
    for definition in server_compatibility.crds_for(server=None):
        ask("POST", _DEFINITIONS, json.dumps(definition).encode(), JSON)
    end = time.monotonic() + _SECONDS
    while not all(map(_is_served, json.loads(ask("GET", _DEFINITIONS, None, "")[1])["items"])):
        if time.monotonic() > end:
            raise TimeoutError(f"our kinds are not served after {_SECONDS:g} s")
        time.sleep(0.1)


def _is_served(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions", ())
    return ("Established", "True") in [(each["type"], each["status"]) for each in conditions]


def answers(ask: Ask, subject: str, prefix: str = "case") -> dict[str, list[Answer]]:
    """What a real server answers to every case.

    Its admission may not know the account of a namespace yet, and then wants to be asked again.
    """
    found = {}
    of_managers = subject == "managers"
    asked = managers.cases() if of_managers else cases(subject)
    counted = managers.counted if of_managers else None
    for number, case in enumerate(asked):
        for attempt in range(50):
            told = play(case, namespace(ask, f"{prefix}-{number}-{attempt}"), ask, counted)
            if all(answer.get("reason") != "ServerTimeout" for answer in told):
                break
            time.sleep(0.05)
        found[case.name] = told
    return found


def fates(ask: Ask, subject: str, prefix: str = "sample") -> dict[str, Fate]:
    """What a real server makes of every sample, by what they are samples of."""
    found = {}
    for number, (name, (kind, obj)) in enumerate(OF_SUBJECT[subject].items()):
        for attempt in range(50):
            told = fate(ask, namespace(ask, f"{prefix}-{subject}-{number}-{attempt}"), kind, obj)
            if told is not None:
                found[name] = told
                break
            time.sleep(0.05)
    return found


def _write(path: Path, found: Mapping[str, object]) -> None:
    lines = (f"{json.dumps(name)}: {json.dumps(told)}" for name, told in found.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{path}: {len(found)} cases")


def main() -> int:
    """Record one version."""
    programs = find()
    if programs is None:
        sys.exit(f"no control plane found: {HOW}")
    sort = RunningControlPlane
    if os.environ.get("TRAINYARD_CURRENT_APISERVER"):
        sort = CurrentControlPlane
    with tempfile.TemporaryDirectory() as folder:
        plane = sort(programs, Path(folder))
        try:
            plane.start()
            for subject in subjects(plane):
                with of_plane(plane) as ask:
                    if subject == "jobs":
                        define(ask)
                    _write(recording(subject, plane.version), answers(ask, subject))
            if plane.is_one:
                with of_plane(plane) as ask:
                    for subject in OF_SUBJECT:
                        _write(recording(subject, plane.version), fates(ask, subject))
        finally:
            plane.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
