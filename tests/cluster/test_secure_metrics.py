"""Metrics over TLS, for whom the API server allows to read them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from pathlib import Path

import aiohttp

from tests.cluster.test_readiness import bind_role, says, shipped, token
from tests.cluster.yard import Operator, Yard, until
from trainyard.embedded.apiserver.auth import certificates
from trainyard.kube.errors import NotFound
from trainyard.kube.resources import Resource
from trainyard.operator.install.install_manifests import Install, dump, review_binding, user_roles

OPTIONS = ("--metrics-secure", "--metrics-port", "0")
BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False
)


async def secure_url(operator: Operator) -> str:
    async def look() -> str:
        found = re.search(r"over TLS on port (\d+)", operator.log)
        return f"https://localhost:{found[1]}/metrics" if found else ""

    return await until(look, bool)


async def ask(url: str, secret: str = "", authority: Path | None = None) -> tuple[int, str]:
    """Status and text; the certificate is verified where its authority is given."""
    context = ssl.create_default_context(cafile=authority) if authority else False
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=context) as answer,
    ):
        return answer.status, await answer.text()


async def allow(yard: Yard) -> str:
    """The operator may ask who somebody is; the name of what lets it."""
    binding = review_binding(Install("none", yard.namespace))
    await yard.kubectl("apply", "--server-side", "-f", "-", stdin=dump([*user_roles(), binding]))
    return str(binding["metadata"]["name"])


async def test_who_may_read_the_metrics_is_for_the_api_server_to_say(yard: Yard) -> None:
    await bind_role(yard, shipped(yard))
    await yard.kubectl("create", "serviceaccount", "prometheus")
    reader = (await yard.kubectl("create", "token", "prometheus")).strip()
    bound = ("clusterrolebinding", f"reads-{yard.namespace}")
    names = [bound[1]]
    try:
        async with yard.operator(*OPTIONS, kubeconfig=await token(yard)) as operator:
            await says(operator, "no right to create tokenreviews.authentication.k8s.io")
            url = await secure_url(operator)
            assert (await ask(url, reader))[0] == 503, "nobody reads what cannot be judged"
            names.append(await allow(yard))
            await operator.leads()
            assert (await ask(url))[0] == 401
            assert (await ask(url, "nonsense"))[0] == 401
            status, text = await ask(url, reader)
            account = f"system:serviceaccount:{yard.namespace}:prometheus"
            assert (status, account in text) == (403, True)
            assert "metricsSecure" in await operator.answer("/metrics")
            who = (
                "--clusterrole=trainyard-metrics",
                f"--serviceaccount={yard.namespace}:prometheus",
            )
            await yard.kubectl("create", *bound, *who)
            status, text = await until(lambda: ask(url, reader), lambda told: told[0] == 200)
            assert "trainyard_leader 1.0" in text
            await yard.kubectl("delete", *bound)
            await until(lambda: ask(url, reader), lambda told: told[0] == 403)
    finally:
        for name in names:
            with contextlib.suppress(NotFound):
                await yard.client.delete(BINDINGS, name)


async def test_a_given_certificate_is_shown_and_so_is_the_next(yard: Yard, tmp_path: Path) -> None:
    """As a Secret of cert-manager is mounted, and renewed."""
    folder = tmp_path / "tls"
    folder.mkdir()

    def issue(name: str) -> Path:
        made = certificates.ensure(tmp_path / name)
        (folder / "tls.key").write_bytes(made.key.read_bytes())
        (folder / "tls.crt").write_bytes(made.certificate.read_bytes())
        return made.authority

    first = issue("first")
    async with yard.operator(*OPTIONS, "--metrics-certificates", str(folder)) as operator:
        url = await secure_url(operator)
        assert (await ask(url, authority=first))[0] == 401
        second = issue("second")

        async def look() -> int:
            try:
                return (await ask(url, authority=second))[0]
            except aiohttp.ClientConnectorCertificateError:
                return 0

        await until(look, lambda status: status == 401)


async def test_without_its_certificate_the_operator_does_not_start(
    yard: Yard, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        *("trainyard", "operator", "--kubeconfig", str(yard.plane.kubeconfig), "--port=0"),
        *(*OPTIONS, "--metrics-certificates", str(tmp_path)),
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 1
    told = err.decode()
    assert f"metricsCertificates: {tmp_path} must hold a certificate (tls.crt)" in told
    assert "Traceback" not in told
