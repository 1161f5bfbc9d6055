"""Serves `/metrics` over TLS, to users whom the API server allows to read it.

Kubernetes' own components do the same: a TokenReview tells whose token the client has shown, and a
SubjectAccessReview whether that user may `get` the path `/metrics`. Answers must not be cached, so
that a revoked token or right counts at once.
https://kubernetes.io/docs/concepts/cluster-administration/system-metrics/
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import gethostname
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import web

from trainyard.kube.client import Client
from trainyard.kube.errors import KubeError
from trainyard.kube.resources import Resource
from trainyard.operator.metrics.health_endpoints import metrics_response
from trainyard.operator.metrics.operator_metrics import OperatorMetrics
from trainyard.schema.errors import TrainyardError

log = logging.getLogger(__name__)

PATH = "/metrics"
_TOKENS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False)
_ACCESS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False
)
_AT_ONCE = 2
"""Anybody who reaches the port can cause requests to the API server; jobs come first."""
_CHECK_SECONDS = 10.0
_LIFETIME = timedelta(days=3650)


class SecureMetrics:
    """The server; `port` 0 is replaced by a free one when it serves."""

    def __init__(
        self, client: Client, host: str, port: int, folder: Path | None, metrics: OperatorMetrics
    ) -> None:
        """`folder` has `tls.crt` and `tls.key`, which may change; None: the process issues its own
        certificate, which nobody can verify."""
        self._client, self._host, self._folder, self._metrics = client, host, folder, metrics
        self.port = port
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve while the block runs. Raises TrainyardError where there is no certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with TemporaryDirectory() as made:
            if self._folder is None:
                _issue_certificate(Path(made))
            _load_certificate(context, self._folder or Path(made))
        app = web.Application()
        app.router.add_get(PATH, self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        renewing = asyncio.create_task(self._renew(context))
        try:
            await web.TCPSite(runner, self._host, self.port, ssl_context=context).start()
            self.port = runner.addresses[0][1]
            log.info("serving %s over TLS on port %d", PATH, self.port)
            yield
        finally:
            renewing.cancel()
            async with asyncio.timeout(5.0):
                await runner.cleanup()

    async def _renew(self, context: ssl.SSLContext) -> None:
        """Load a changed certificate, for new connections."""
        folder = self._folder
        before = _modification_time(folder)
        while folder is not None:
            await asyncio.sleep(_CHECK_SECONDS)
            if (now := _modification_time(folder)) != before:
                try:
                    _load_certificate(context, folder)
                    before = now
                except TrainyardError as error:  # perhaps only one of the files was written yet
                    log.warning("%s; the one before is kept", error)

    async def _answer(self, request: web.Request) -> web.Response:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return _refusal(401, "show a token: Authorization: Bearer ...")
        try:
            async with self._slots:
                user = await self._authenticate(token.strip())
                if user is None:
                    return _refusal(401, "the API server does not know this token")
                if not await self._is_authorized(user):
                    name = user.get("username", "")
                    return _refusal(403, f"{name} may not get {PATH} (nonResourceURLs)")
        except KubeError as error:
            log.warning("cannot tell who may read the metrics: %s", error)
            return _refusal(503, str(error))
        return metrics_response(self._metrics, request)

    async def _authenticate(self, token: str) -> dict[str, Any] | None:
        status = await self._review(_TOKENS, {"token": token})
        return status.get("user") or {} if status.get("authenticated") else None

    async def _is_authorized(self, user: dict[str, Any]) -> bool:
        spec: dict[str, Any] = {"user": user.get("username", "")}
        spec |= {key: user[key] for key in ("uid", "groups", "extra") if key in user}
        spec["nonResourceAttributes"] = {"path": PATH, "verb": "get"}
        return bool((await self._review(_ACCESS, spec)).get("allowed"))

    async def _review(self, kind: Resource, spec: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
        return (await self._client.create(kind, body)).get("status") or {}


def _refusal(status: int, text: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return web.Response(status=status, text=text, headers=headers)


def _modification_time(folder: Path | None) -> float:
    try:
        return (folder / "tls.crt").stat().st_mtime if folder else 0.0
    except OSError:
        return 0.0


def _load_certificate(context: ssl.SSLContext, folder: Path) -> None:
    try:
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    except (OSError, ssl.SSLError) as error:
        raise TrainyardError(
            f"metricsCertificates: {folder} must hold a certificate (tls.crt) and its key "
            f"(tls.key): {error.strerror or error}"
        ) from error


def _issue_certificate(folder: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainyard-operator")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(gethostname())]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
