"""The clients of others: where they are installed, and what they play."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.embedded.command_line import CommandLine
from tests.embedded.lifecycle_yard import Api
from tests.tools import missing
from trainyard.machine.state_folder import Paths

INSTALLED = Path(__file__).parents[2] / ".cache/clients"
PLAYS = Path(__file__).parent / "clients"
LOCKS = Path(__file__).parents[2] / "requirements/clients"
PROMISES = {
    "pods": "pods are created, read, listed by label, watched, patched, and deleted",
    "logs": "logs are read, from the end, and followed",
    "execute": "commands run in a container, with output, exit code and input (not in kr8s)",
    "port_forward": "ports of a pod are forwarded",
    "config_maps": "ConfigMaps are created, replaced unless stale, patched, and deleted",
    "services": "Services get an address, are patched and deleted",
    "apply": "server-side apply: owners of fields, conflicts, and force",
    "our_kinds": "jobs of all four kinds, as custom resources: run or paused, and watched",
    "operator": "operators: handlers of creation, change and deletion, finalizers, and events",
    "refusals": "what is not there, there already, or wrong is refused as the client expects it",
}
"""What each step of a play shows."""
_SECONDS = 900


class Client(NamedTuple):
    """A client: its name and version, the folder that it is installed in, and its play."""

    name: str
    folder: str
    play: str

    def program(self) -> list[str]:
        """What runs its play; without it the test is skipped, and fails in CI.

        Only a machine without Node.js is left out there too: nothing else needs that.
        """
        runner = INSTALLED / self.folder / "bin/python"
        if self.play.endswith(".mjs"):
            node = shutil.which("node")
            if node is None or shutil.which("npm") is None:
                pytest.skip(f"{self.name} is not judged: there is no node with npm")
            runner = Path(node)
        if not (INSTALLED / self.folder).exists():
            missing(f"{self.name} is not installed: make clients")
        return [str(runner), str(PLAYS / self.play)]

    def steps(self) -> list[str]:
        """The steps that its play says it plays."""
        (said,) = re.findall(r"^main\(([\w, \n]+)\)", (PLAYS / self.play).read_text(), re.MULTILINE)
        return [step.strip() for step in said.split(",") if step.strip()]

    @property
    def package(self) -> str:
        """The name without what tells two versions apart."""
        return self.name.removesuffix("-older")

    def version(self) -> str:
        """As locked."""
        if self.folder == "node":
            locked = json.loads((LOCKS / "node/package-lock.json").read_text())
            return str(locked["packages"][f"node_modules/{self.package}"]["version"])
        return self.lock().split()[0].partition("==")[2]

    def lock(self) -> str:
        """What its lock says of it, as pip reads it: not of one for Node.js."""
        text = (LOCKS / f"{self.folder}.lock").read_text()
        (found,) = re.findall(
            rf"^{self.package.replace('_', '-')}==.*(?:\n +--hash=.*)+", text, re.MULTILINE
        )
        return str(found)


CLIENTS = [
    Client("kubernetes", "newest", "official.py"),
    Client("kubernetes-older", "older", "official.py"),
    Client("kubernetes_asyncio", "newest", "asynchronous.py"),
    Client("lightkube", "newest", "lightkube_client.py"),
    Client("kr8s", "newest", "kr8s_client.py"),
    Client("kopf", "newest", "operators.py"),
    Client("@kubernetes/client-node", "node", "client_node.mjs"),
]


def told(line: CommandLine, client: Client, namespace: str) -> dict[str, str]:
    """What became of each step of a client's play in a namespace of its own; "" is well."""
    program = client.program()
    code, answer = Api(Paths(line.state).api_socket).request(
        "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}
    )
    assert code == 201, answer
    environment = {
        **line.environment,
        "KUBECONFIG": str(Paths(line.state).kubeconfig),
        "NAMESPACE": namespace,
        "INSTALLED": str(INSTALLED / client.folder),
    }
    done = subprocess.run(
        program,
        env=environment,
        cwd=line.folder,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    told = [json.loads(each) for each in done.stdout.splitlines() if each.startswith("{")]
    steps = {each["step"]: each["error"] for each in told}
    assert steps, f"{done.stdout}\n{done.stderr}"
    return steps
