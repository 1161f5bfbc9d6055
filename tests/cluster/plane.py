"""etcd, kube-apiserver and kube-controller-manager as processes of the tests."""

from __future__ import annotations

import ctypes
import http.client
import random
import signal
import socket
import ssl
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tools.control_plane import ControlPlane

from trainyard.embedded.apiserver.auth import certificates

ADMIN = "admin-of-the-tests"
START_SECONDS = 180.0
"""For a server to start, or anything else to come: on a machine with much else to do."""
GRACE_SECONDS = 15.0
"""Longer than an operator holds on to a Lease that it cannot renew."""
_CONTROLLERS = (
    "garbagecollector",
    "namespace",
    "resourcequota",
    "serviceaccount",
    "serviceaccount-token",
)
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_libc = ctypes.CDLL(None)


def starved(pids: list[int]) -> float:
    """Seconds for which threads of these processes could have run, and others did.

    https://docs.kernel.org/scheduler/sched-stats.html#proc-pid-schedstat
    """
    waited = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(FileNotFoundError, ProcessLookupError):
                waited += int(path.read_text().split()[1])
    return waited / 1e9


def free_port() -> int:
    """A port that nobody listens on just now, and that no connection gets to go out by.

    https://docs.kernel.org/networking/ip-sysctl.html (ip_local_port_range)
    """
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            return int(probe.getsockname()[1])


class RunningControlPlane:
    """A control plane with its data in `folder`; ports and data stay over a restart of a part."""

    # Some clusters have it: an owner that blocks deletion takes a right of its own.
    admission: tuple[str, ...] = (
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
    )

    stored_below = "/registry"
    """Where in etcd the objects of our kinds are."""

    def __init__(self, programs: ControlPlane, folder: Path) -> None:
        self.programs = programs
        self.version = programs.version
        self.core_version = programs.version
        """Of what serves pods and all other kinds but those that are defined, and policies."""
        self.folder = folder
        self.port = free_port()
        self.core_port = self.port
        """Of the server that has the core kinds."""
        self.etcd_port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._made = certificates.ensure(folder / "pki")
        self._tls = ssl.create_default_context(cafile=str(self._made.authority))
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        (folder / "accounts.key").write_bytes(key)
        (folder / "tokens.csv").write_text(f'{ADMIN},admin,admin,"system:masters"\n')
        self.kubeconfig = self.write_kubeconfig("admin", ADMIN)

    @property
    def authority(self) -> Path:
        """Certificate of the authority that vouches for the API server."""
        return self._made.authority

    @property
    def certificate(self) -> tuple[Path, Path]:
        """Certificate and key of the API server, for what stands in front of it."""
        return self._made.certificate, self._made.key

    @property
    def pids(self) -> list[int]:
        """Of etcd and the servers."""
        return [process.pid for process in self._processes.values()]

    @property
    def collects(self) -> bool:
        """Whether there is a garbage collector."""
        return self.programs.controller_manager is not None

    @property
    def is_one(self) -> bool:
        """Whether one server serves everything."""
        return self.version == self.core_version

    def write_kubeconfig(self, name: str, token: str, port: int | None = None) -> Path:
        """A kubeconfig for whoever holds `token`; `port` is that of a proxy."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": f"https://127.0.0.1:{port or self.port}",
                        "certificate-authority": str(self._made.authority),
                    },
                }
            ],
            "users": [{"name": name, "user": {"token": token}}],
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def start(self) -> None:
        """Start everything, and return when it can be used."""
        self.start_etcd()
        self.start_apiserver()
        self.until_ready()
        if self.programs.controller_manager is not None:
            insecure = ("--port=0",) if self.programs.version < (1, 24) else ()
            self._start(
                self.programs.controller_manager,
                "--secure-port=0",
                *insecure,
                f"--kubeconfig={self.kubeconfig}",
                f"--controllers={','.join(_CONTROLLERS)}",
                f"--service-account-private-key-file={self.folder}/accounts.key",
                f"--root-ca-file={self._made.authority}",
                "--leader-elect=false",
            )

    def start_etcd(self) -> None:
        """Start etcd alone."""
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{free_port()}"
        self._start(
            self.programs.etcd,
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )

    def start_apiserver(self) -> None:
        """Start the API server; not in a thread, whose end would be the server's."""
        admission = () if self.collects else ("--disable-admission-plugins=ServiceAccount",)
        self._start(
            self.programs.apiserver,
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            f"--secure-port={self.core_port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder}",
            f"--tls-cert-file={self._made.certificate}",
            f"--tls-private-key-file={self._made.key}",
            f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",  # that of our node agent's Services
            "--service-account-issuer=https://tests",
            f"--service-account-key-file={self.folder}/accounts.key",
            f"--service-account-signing-key-file={self.folder}/accounts.key",
            *self.admission,
            *admission,
        )

    def stop_apiserver(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the API server and wait for that."""
        self._stop(self.programs.apiserver.name, number)

    @property
    def serves(self) -> bool:
        """Whether the API server has been started and not been stopped since."""
        return self._runs(self.programs.apiserver.name)

    def _runs(self, name: str) -> bool:
        process = self._processes.get(name)
        return process is not None and process.poll() is None

    def stop(self) -> None:
        """End everything, the servers before what they depend on."""
        for name in reversed(self._processes):
            self._stop(name, signal.SIGKILL)

    def get(self, path: str, port: int | None = None) -> tuple[int, bytes]:
        """What the API server answers to its administrator; OSError when it does not."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port or self.port, timeout=120, context=self._tls
        )
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {ADMIN}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def log(self, name: str) -> str:
        """The end of what a program has written."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def until_ready(self, port: int | None = None) -> None:
        """Wait until the API server serves, or the one that has this port."""
        deadline = time.monotonic() + START_SECONDS
        servers = [name for name in self._processes if port is None and "apiserver" in name]
        while time.monotonic() < deadline:
            for name in servers:
                assert self._runs(name), self.log(name)
            try:
                status, _ = self.get("/readyz", port)
            except OSError:
                status = 0
            if status == 200:
                return
            time.sleep(0.1)
        raise AssertionError(f"the API server does not start: {self.log('kube-apiserver')}")

    def _start(self, program: Path, *arguments: str) -> None:
        with (self.folder / f"{program.name}.log").open("ab") as log:
            self._processes[program.name] = subprocess.Popen(
                [program, *arguments],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                # Nothing may outlive the tests, however they end.
                preexec_fn=lambda: _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL),
            )

    def _stop(self, name: str, number: signal.Signals) -> None:
        process = self._processes[name]
        process.send_signal(number)
        try:
            process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=START_SECONDS)
