"""Write down what a real API server answers: `python -m tests.differential.record`.

The control plane is the one that `tests/cluster` would take.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path

from tools.control_plane import HOW, find

from tests.cluster.plane import ADMIN, RunningControlPlane
from tests.differential.asking import Answer, Ask, over, play
from tests.differential.cases import JSON, MERGE, cases

RECORDED = Path(__file__).parent / "recorded"
_WITHOUT_TOKEN = b'{"automountServiceAccountToken": false}'
_SECONDS = 30.0


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


def answers(ask: Ask, prefix: str = "case") -> dict[str, list[Answer]]:
    """What a real server answers to every case.

    Its admission may not know the account of a namespace yet, and then wants to be asked again.
    """
    found = {}
    for number, case in enumerate(cases()):
        for attempt in range(50):
            told = play(case, namespace(ask, f"{prefix}-{number}-{attempt}"), ask)
            if all(answer.get("reason") != "ServerTimeout" for answer in told):
                break
            time.sleep(0.05)
        found[case.name] = told
    return found


def main() -> int:
    """Record one version."""
    programs = find()
    if programs is None:
        sys.exit(f"no control plane found: {HOW}")
    with tempfile.TemporaryDirectory() as folder:
        plane = RunningControlPlane(programs, Path(folder))
        try:
            plane.start()
            with of_plane(plane) as ask:
                found = answers(ask)
        finally:
            plane.stop()
    RECORDED.mkdir(exist_ok=True)
    path = RECORDED / f"{'.'.join(map(str, plane.version))}.json"
    lines = (f"{json.dumps(name)}: {json.dumps(told)}" for name, told in found.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{path}: {len(found)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
