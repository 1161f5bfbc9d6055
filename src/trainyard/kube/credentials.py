"""Kubeconfig files, exec plugins and service accounts: where a cluster is, and who we are there.

Written out because the libraries that read kubeconfigs bring a whole client along (import times
measured: lightkube 0.2 s, and it knows no `client.authentication.k8s.io/v1`; kubernetes_asyncio
0.46 s). The rules are kubectl's: https://kubernetes.io/docs/concepts/configuration/
organize-cluster-access-kubeconfig/ and https://kubernetes.io/docs/reference/access-authn-authz/
authentication/#client-go-credential-plugins.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import ssl
import tempfile
import time
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainyard.kube.errors import ConfigError
from trainyard.schema import times
from trainyard.schema.dataclass import dataclass

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_TIMEOUT_SECONDS = 60.0
_TOKEN_FILE_SECONDS = 60.0
_EXPIRY_MARGIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """What to present: an Authorization header, or a client certificate as PEM texts."""

    authorization: str = ""
    certificate: bytes = b""
    key: bytes = b""


@dataclass(slots=True)
class Cluster:
    """One cluster as one user sees it."""

    server: str
    namespace: str = "default"
    ca: bytes = b""
    insecure: bool = False
    tls_server_name: str = ""
    proxy: str = ""
    certificate: bytes = b""
    key: bytes = b""
    authorization: str = ""
    token_file: Path | None = None
    plugin: dict[str, Any] | None = None
    _cached: Credentials | None = field(default=None, repr=False)
    _cached_until: float = 0.0

    async def credentials(self) -> Credentials:
        """What to present now: from the file, from a token file or from a plugin, if due."""
        if self._cached is not None and time.monotonic() < self._cached_until:
            return self._cached
        if self.plugin is not None:
            await self._run_plugin(self.plugin)
        elif self.token_file is not None:
            token = await asyncio.to_thread(self.token_file.read_text)
            self._keep(Credentials(f"Bearer {token.strip()}"), _TOKEN_FILE_SECONDS)
        else:
            static = Credentials(self.authorization, self.certificate, self.key)
            self._keep(static, float("inf"))
        assert self._cached is not None
        return self._cached

    def tls(self, credentials: Credentials) -> ssl.SSLContext:
        """How to recognise the server, and how to be recognised by it."""
        context = ssl.create_default_context()
        if self.ca:
            context = ssl.create_default_context(cadata=self.ca.decode())
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate = credentials.certificate or self.certificate
        if certificate:
            # The ssl module reads certificates from files only.
            with tempfile.NamedTemporaryFile() as file:
                file.write(certificate + b"\n" + (credentials.key or self.key))
                file.flush()
                context.load_cert_chain(file.name)
        return context

    def _keep(self, credentials: Credentials, seconds: float) -> None:
        self._cached = credentials
        self._cached_until = time.monotonic() + seconds

    async def _run_plugin(self, plugin: dict[str, Any]) -> None:
        status = await _plugin_status(plugin, self.server, self.ca)
        token = status.get("token", "")
        certificate = status.get("clientCertificateData", "").encode()
        credentials = Credentials(
            authorization=f"Bearer {token}" if token else "",
            certificate=certificate,
            key=status.get("clientKeyData", "").encode(),
        )
        expiry = status.get("expirationTimestamp")
        seconds = float("inf")
        if expiry:
            now = datetime.now(UTC)
            left = ((times.parse(expiry) or now) - now).total_seconds()
            seconds = max(0.0, left - _EXPIRY_MARGIN_SECONDS)
        self._keep(credentials, seconds)


def load(path: str | Path | None = None, context: str | None = None) -> Cluster:
    """The cluster of a kubeconfig's context, or of the pod that this process runs in.

    Without `path`: the files of `$KUBECONFIG`, else `~/.kube/config`, else the service account.
    """
    paths = [Path(path)] if path else _default_paths()
    files = [file for file in paths if file.is_file()]
    if files:
        return _from_files(files, context)
    if path is None and (SERVICE_ACCOUNT / "token").is_file():
        return _from_service_account()
    tried = ", ".join(map(str, paths))
    raise ConfigError(
        f"no kubeconfig: {tried} does not exist; name one with --kubeconfig or $KUBECONFIG"
    )


def own_namespace() -> str | None:
    """Of the pod that this process runs in; None outside of a cluster."""
    file = SERVICE_ACCOUNT / "namespace"
    return file.read_text().strip() if file.is_file() else None


def _default_paths() -> list[Path]:
    listed = os.environ.get("KUBECONFIG", "")
    paths = [Path(part) for part in listed.split(os.pathsep) if part]
    return paths or [Path.home() / ".kube" / "config"]


def _from_service_account() -> Cluster:
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST"),
        os.environ.get("KUBERNETES_SERVICE_PORT"),
    )
    if not host or not port:
        raise ConfigError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    if ":" in host:
        host = f"[{host}]"
    return Cluster(
        server=f"https://{host}:{port}",
        namespace=(SERVICE_ACCOUNT / "namespace").read_text().strip(),
        ca=(SERVICE_ACCOUNT / "ca.crt").read_bytes(),
        token_file=SERVICE_ACCOUNT / "token",
    )


def _from_files(files: list[Path], context: str | None) -> Cluster:
    """Merged as kubectl does: the first file that sets a name or the current context wins."""
    import yaml

    named: dict[str, dict[str, tuple[dict[str, Any], Path]]] = {}
    current = ""
    for file in files:
        try:
            document = yaml.safe_load(file.read_text())
        except (OSError, yaml.YAMLError) as error:
            raise ConfigError(f"cannot read kubeconfig {file}: {error}") from error
        if not isinstance(document, dict):
            raise ConfigError(f"kubeconfig {file} is not a mapping")
        current = current or document.get("current-context") or ""
        for plural in ("clusters", "contexts", "users"):
            for entry in document.get(plural) or ():
                body = entry.get(plural[:-1]) or {}
                named.setdefault(plural, {}).setdefault(entry["name"], (body, file.parent))
    context = context or current
    chosen, _ = _pick(named, "contexts", context, files)
    server, where = _pick(named, "clusters", chosen.get("cluster", ""), files)
    user: dict[str, Any] = {}
    home = where
    if chosen.get("user"):
        user, home = _pick(named, "users", chosen["user"], files)
    return _cluster(chosen, server, where, user, home)


def _pick(
    named: dict[str, dict[str, tuple[dict[str, Any], Path]]],
    plural: str,
    name: str,
    files: list[Path],
) -> tuple[dict[str, Any], Path]:
    try:
        return named[plural][name]
    except KeyError:
        known = ", ".join(named.get(plural, {})) or "none"
        where = ", ".join(map(str, files))
        raise ConfigError(
            f"no {plural[:-1]} {name!r} in kubeconfig {where} (there: {known})"
        ) from None


def _cluster(
    context: dict[str, Any], server: dict[str, Any], where: Path, user: dict[str, Any], home: Path
) -> Cluster:
    if not server.get("server"):
        raise ConfigError("the kubeconfig's cluster has no server")
    if user.get("auth-provider"):
        raise ConfigError(
            "auth-provider was removed from Kubernetes 1.26; use an exec plugin in the kubeconfig"
        )
    authorization = f"Bearer {user['token']}" if user.get("token") else ""
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}".encode()
        authorization = f"Basic {base64.b64encode(pair).decode()}"
    token_file = user.get("tokenFile")
    return Cluster(
        server=server["server"],
        namespace=context.get("namespace") or "default",
        ca=_data(server, "certificate-authority", where),
        insecure=bool(server.get("insecure-skip-tls-verify")),
        tls_server_name=server.get("tls-server-name") or "",
        proxy=server.get("proxy-url") or "",
        certificate=_data(user, "client-certificate", home),
        key=_data(user, "client-key", home),
        authorization=authorization,
        token_file=home / token_file if token_file else None,
        plugin=user.get("exec"),
    )


def _data(entry: dict[str, Any], name: str, folder: Path) -> bytes:
    """`<name>-data` in base64, or the contents of the file `<name>`."""
    try:
        if entry.get(f"{name}-data"):
            return base64.b64decode(entry[f"{name}-data"], validate=True)
        if entry.get(name):
            return (folder / str(entry[name])).read_bytes()
    except (OSError, binascii.Error) as error:
        raise ConfigError(f"cannot use {name} of the kubeconfig: {error}") from error
    return b""


async def _plugin_status(plugin: dict[str, Any], server: str, ca: bytes) -> dict[str, Any]:
    """Run a credential plugin; `status` of the ExecCredential that it prints."""
    command = [plugin["command"], *(plugin.get("args") or ())]
    info: dict[str, Any] = {
        "apiVersion": plugin["apiVersion"],
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    if plugin.get("provideClusterInfo"):
        info["spec"]["cluster"] = {
            "server": server,
            "certificate-authority-data": base64.b64encode(ca).decode(),
        }
    environment = dict(os.environ)
    environment.update({item["name"]: item["value"] for item in plugin.get("env") or ()})
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(info)
    output = await _run(command, environment, plugin.get("installHint") or "")
    try:
        status = json.loads(output)["status"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"credential plugin {command[0]} printed no ExecCredential") from error
    if not isinstance(status, dict):
        raise ConfigError(f"credential plugin {command[0]} printed no status")
    return status


async def _run(command: list[str], environment: dict[str, str], hint: str) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        message = f"cannot run credential plugin {command[0]}: {error.strerror}. {hint}"
        raise ConfigError(message.strip()) from error
    try:
        async with asyncio.timeout(_EXEC_TIMEOUT_SECONDS):
            output, errors = await process.communicate()
    except BaseException as error:
        process.kill()
        await process.wait()
        if isinstance(error, TimeoutError):
            raise ConfigError(f"credential plugin {command[0]} did not end") from error
        raise
    if process.returncode:
        text = errors.decode(errors="replace").strip()
        raise ConfigError(f"credential plugin {command[0]} failed ({process.returncode}): {text}")
    return output
