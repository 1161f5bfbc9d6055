"""The checks of `trainyard doctor --context`: whether a cluster and its operator are in order.

Each check asks the API server one thing and says what to do where something is wrong. A check must
not change anything; access reviews are questions, though they are asked by creating an object.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from trainyard.kinds.shared.install_commands import command_for_everything
from trainyard.kinds.shared.job_settings import GangBackend
from trainyard.kube.client import Client
from trainyard.kube.errors import Forbidden, KubeError, NotFound
from trainyard.kube.resources import LEASES, NAMESPACES, PODS
from trainyard.kube.transport import Request
from trainyard.operator.config.operator_settings import LeaseSettings
from trainyard.operator.doctor.definition_checks import check_definitions
from trainyard.operator.doctor.doctor_context import DoctorContext, Finding, Object, State
from trainyard.operator.doctor.permission_checks import check_permissions
from trainyard.operator.doctor.settings_checks import OPERATOR_PODS, check_settings
from trainyard.operator.gang_detection import served_gang_schedulers
from trainyard.schema.times import parse

_TRIES = 5
_SKEW_SECONDS = 2.0
"""By so much may a Date in whole seconds and a slow answer be off."""


async def examine(
    kubeconfig: str | None, context: str | None, namespace: str | None, *, as_operator: bool
) -> list[Finding]:
    """Run all checks on the cluster of a kubeconfig, and return what they find."""
    async with await Client.from_kubeconfig(kubeconfig, context, timeout_seconds=15.0) as client:
        cluster = DoctorContext(client, namespace or client.namespace, as_operator)
        found: list[Finding] = []
        for check in CHECKS:
            found += [each async for each in check(cluster)]
            if not cluster.version[0]:
                break
        return found


async def _check_server(context: DoctorContext) -> AsyncIterator[Finding]:
    """Whether the server answers, and how far its clock is off."""
    times: list[float] = []
    headers: Mapping[str, str] = {}
    try:
        for _ in range(_TRIES):
            asked, began = time.time(), time.monotonic()
            answer = await context.client.raw(Request("GET", "/version"), "read the version")
            times.append(time.monotonic() - began)
            headers = answer.headers
            ahead = _seconds_ahead(headers, asked + times[-1] / 2)
            context.server_ahead = ahead if ahead is not None else 0.0
        context.version = await context.client.server_version()
    except KubeError as error:
        fix = "check the kubeconfig and the network: kubectl version"
        yield Finding("API server", "problem", str(error), fix)
        return
    context.slowest = max(times)
    yield _clock_finding("clock of the server", context.server_ahead, "this machine's")


async def _check_namespace(context: DoctorContext) -> AsyncIterator[Finding]:
    """Whether the namespace exists, as far as the user may read it."""
    try:
        await context.client.get(NAMESPACES, context.namespace)
    except NotFound:
        text = f"{context.namespace} does not exist, so no job can be submitted to it"
        fix = f"name another with -n, or kubectl create namespace {context.namespace}"
        yield Finding("namespace", "problem", text, fix)
    except KubeError:
        return


async def _check_answer_times(context: DoctorContext) -> AsyncIterator[Finding]:
    """The version, and whether answers are fast enough for the Lease."""
    lease, slow = context.lease_settings, context.slowest
    measured = f"Kubernetes {'.'.join(map(str, context.version))}, answers within {slow:.3f} s"
    if slow < lease.retry_period:
        yield Finding("API server", "ok", measured)
        return
    state: State = "problem" if slow > lease.renew_deadline / 2 else "note"
    deadline = f"the Lease must be renewed within {lease.renew_deadline:g} s"
    fix = "raise leaseDuration, leaseRenewDeadline and leaseRetryPeriod together, or find out why"
    yield Finding("API server", state, f"{measured}; {deadline}", fix)


def _seconds_ahead(headers: Mapping[str, str], now: float) -> float | None:
    try:
        server_time = parsedate_to_datetime(headers.get("date", "")).timestamp()
    except ValueError:
        return None
    return server_time + 0.5 - now  # the header has whole seconds, rounded down


def _clock_finding(check: str, ahead: float, than: str) -> Finding:
    if abs(ahead) <= _SKEW_SECONDS:
        return Finding(check, "ok", f"within {_SKEW_SECONDS:g} s of {than}")
    word = "ahead of" if ahead > 0 else "behind"
    text = f"{abs(ahead):.0f} s {word} {than}; deadlines and times of jobs are off by as much"
    return Finding(check, "problem", text, "let both keep time by NTP (chrony, systemd-timesyncd)")


async def _check_lease(context: DoctorContext) -> AsyncIterator[Finding]:
    install = command_for_everything(context.version)
    if context.settings is not None and context.settings.lease is None:
        yield Finding("Lease", "note", "leaderElect is false, so there must be one operator only")
        return
    try:
        leases, _ = await context.client.list(LEASES)
    except KubeError as error:
        yield Finding("Lease", "note", f"{error}, so the leader is not known")
        return
    names = (LeaseSettings().name, context.lease_settings.name)
    ours = [lease for lease in leases if lease["metadata"]["name"].startswith(names)]
    if not ours:
        yield Finding("Lease", "problem", "there is none: no operator has run here", install)
        return
    for lease in ours:
        name = f"{lease['metadata']['namespace']}/{lease['metadata']['name']}"
        age = _age(context, lease)
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if not holder or (age > _duration(lease) and not await _is_renewed(context, lease)):
            look = f"kubectl -n {lease['metadata']['namespace']} get pods,events; {install}"
            yield Finding("Lease", "problem", f"nobody holds {name}: no operator works", look)
            continue
        context.lease = context.lease or lease
        changes = int(lease["spec"].get("leaseTransitions") or 0)
        yield Finding("Lease", "ok", f"{name} is held by {holder}, {changes} changes so far")
        # It is renewed every two seconds, so up to two seconds of age are normal.
        behind = age - context.lease_settings.retry_period
        yield _clock_finding(
            "clock of the leader", -age if age < 0 else min(0.0, -behind), "the server's"
        )


def _age(context: DoctorContext, lease: Object) -> float:
    """Seconds since the Lease was renewed: the holder's time against the server's clock."""
    renewed = parse((lease.get("spec") or {}).get("renewTime"))
    now = datetime.now(UTC).timestamp() + context.server_ahead
    return now - renewed.timestamp() if renewed is not None else float("inf")


def _duration(lease: Object) -> float:
    seconds = (lease.get("spec") or {}).get("leaseDurationSeconds")
    return float(seconds or LeaseSettings().duration)


async def _is_renewed(context: DoctorContext, lease: Object) -> bool:
    """Whether the Lease is being renewed, however far the holder's clock is off."""
    await asyncio.sleep(2 * context.lease_settings.retry_period)
    metadata = lease["metadata"]
    again = await context.client.get(LEASES, metadata["name"], metadata["namespace"])
    return bool(again["spec"].get("renewTime") != lease["spec"].get("renewTime"))


async def _check_operator(context: DoctorContext) -> AsyncIterator[Finding]:
    """What the operator's pods report, asked through the proxy of the API server."""
    if not context.pods and context.lease is not None:
        try:
            home = context.lease["metadata"]["namespace"]
            context.pods, _ = await context.client.list(PODS, home, OPERATOR_PODS)
        except KubeError as error:
            yield Finding("operator", "note", f"{error}, so it is not asked")
            return
    secure, lost = context.settings is not None and context.settings.metrics_secure, 0.0
    for pod in context.pods:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        base = PODS.path(namespace, f"{name}:{_http_port(pod)}", "proxy")
        try:
            ready = await _get_text(context, f"{base}/readyz")
            if not secure:
                lost += _lost_events(await _get_text(context, f"{base}/metrics"))
        except Forbidden:
            yield Finding("operator", "note", "no right to reach its pods (get pods/proxy)")
            return
        except KubeError as error:
            fix = f"kubectl -n {namespace} logs {name}"
            yield Finding("operator", "problem", f"{name}: {error}", fix)
            continue
        yield Finding("operator", "ok", f"{name}: {ready}")
    if not context.pods:
        return
    if secure:
        text = "with metricsSecure the metrics, which count those lost, are not read here"
        yield Finding("events", "note", text, "look at trainyard_events_lost_total")
    elif lost:
        fix = "see its log; docs/operations/troubleshooting.md tells of each reason"
        yield Finding("events", "problem", f"{lost:.0f} events of jobs were lost", fix)
    else:
        yield Finding("events", "ok", "none was lost")


def _http_port(pod: Object) -> int:
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("name") == "http":
                return int(port["containerPort"])
    return 8080


async def _get_text(context: DoctorContext, path: str) -> str:
    answer = await context.client.raw(Request("GET", path, accept="*/*"), "ask the operator")
    return answer.body.decode(errors="replace")


def _lost_events(metrics: str) -> float:
    found = re.findall(r"^trainyard_events_lost_total\{[^}]*\} (\S+)", metrics, re.MULTILINE)
    return sum(map(float, found))


async def _check_gang_scheduler(context: DoctorContext) -> AsyncIterator[Finding]:
    known = context.settings
    wanted = known.operator.lifecycle.gang_backend if known else GangBackend.AUTO
    try:
        found = {
            each: sign.full_name async for each, sign in served_gang_schedulers(context.client)
        }
    except KubeError as error:
        yield Finding("gang scheduler", "note", str(error))
        return
    is_auto = wanted is GangBackend.AUTO
    context.gang = next(iter(found), GangBackend.NONE) if is_auto else wanted
    rest = [f"{each} ({name})" for each, name in found.items() if each is not context.gang]
    also = f"; there is {', '.join(rest)} too" if rest else ""
    if context.gang in found:
        text = f"jobs are handed to {context.gang} ({found[context.gang]}){also}"
        yield Finding("gang scheduler", "ok", text)
    elif context.gang in (GangBackend.T9K, GangBackend.NONE) and not is_auto:
        yield Finding("gang scheduler", "ok", f"gangScheduler is {wanted}{also}")
    elif not is_auto:
        text = f"gangScheduler is {wanted}, which is not served here{also}"
        yield Finding("gang scheduler", "problem", text, "install it, or change the setting")
    else:
        # T9k's is served by our own definitions, whether its scheduler runs or not.
        text = "none found, but T9k's could not be told: without it, jobs that ask for one wait"
        yield Finding("gang scheduler", "note", text, "install Kueue, Volcano or scheduler-plugins")


Check = Callable[[DoctorContext], AsyncIterator[Finding]]
CHECKS: tuple[Check, ...] = (
    _check_server,
    _check_namespace,
    check_settings,
    _check_answer_times,
    check_definitions,
    _check_lease,
    _check_operator,
    _check_gang_scheduler,
    check_permissions,
)
"""In the order in which they run: later ones use what earlier ones have found."""
