"""Probes and lifecycle hooks: exec, httpGet, tcpSocket and grpc against a container."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple

from trainyard.embedded.node.container_runtime import ContainerRuntime
from trainyard.embedded.node.containers.exec_sessions import new_command, run_command
from trainyard.embedded.node.pods.pod_status import ContainerRun
from trainyard.schema.errors import TrainyardError

ProbeCallback = Callable[[ContainerRun, str, str], None]
_Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[str]]
_log = logging.getLogger(__name__)
_HOOK_SECONDS = 600.0
_STARTUP_POLL_SECONDS = 0.2
_STATUS_LINE_BYTES = 4096


class ProbeTarget(NamedTuple):
    """A container, and how to reach it: its pod's uid and address."""

    runtime: ContainerRuntime
    pod: str
    address: str
    run: ContainerRun


class Prober:
    """Runs the probes of one pod; ``verdict(run, outcome, message)`` is called on changes.

    Outcomes are ``has_started``, ``is_ready``, ``unready``, ``failing`` (the message says how) and
    ``failed`` (the message names the probe).
    """

    def __init__(self, verdict: ProbeCallback) -> None:
        self._verdict = verdict
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._others: set[asyncio.Task[None]] = set()

    def start(self, target: ProbeTarget) -> None:
        """Begin probing a container that has just started."""
        run = target.run
        self.stop(run.name)
        self._tasks[run.name] = [
            asyncio.create_task(self._probe(target, kind, spec))
            for kind in ("startup", "readiness", "liveness")
            if (spec := run.spec.get(f"{kind}Probe"))
            and not (kind == "startup" and run.has_started)
        ]

    def stop(self, container: str) -> None:
        for task in self._tasks.pop(container, ()):
            task.cancel()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that close() cancels."""
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def close(self) -> None:
        """Cancel everything and wait until it has ended."""
        tasks = [task for group in self._tasks.values() for task in group] + [*self._others]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _probe(self, target: ProbeTarget, kind: str, spec: Mapping[str, Any]) -> None:
        run = target.run
        period = float(spec.get("periodSeconds", 10))
        needed = int(spec.get("successThreshold", 1))
        allowed = int(spec.get("failureThreshold", 3))
        successes = failures = 0
        last_problem = ""
        await asyncio.sleep(float(spec.get("initialDelaySeconds", 0)))
        while True:
            if kind != "startup" and not run.has_started:
                await asyncio.sleep(min(period, _STARTUP_POLL_SECONDS))
                continue
            problem = await run_probe(target, spec)
            successes = 0 if problem else successes + 1
            failures = failures + 1 if problem else 0
            if problem and problem != last_problem:  # the same problem is reported once
                self._verdict(run, "failing", f"{kind.capitalize()} probe failed: {problem}")
            last_problem = problem
            if kind == "readiness":
                if successes >= needed and not run.is_ready:
                    self._verdict(run, "ready", "")
                elif failures >= allowed and run.is_ready:
                    self._verdict(run, "unready", "")
            elif failures >= allowed:
                self.spawn(self._fail(run, f"{kind} probe"))
                return
            elif kind == "startup" and successes >= needed:
                self._verdict(run, "started", "")
                return
            await asyncio.sleep(period)

    async def _fail(self, run: ContainerRun, probe: str) -> None:
        self._verdict(run, "failed", probe)


async def run_probe(target: ProbeTarget, spec: Mapping[str, Any]) -> str:
    """One probe; returns what is wrong, or "" when all is well."""
    seconds = float(spec.get("timeoutSeconds", 1))
    try:
        async with asyncio.timeout(seconds):
            return await _run_action(target, spec)
    except TimeoutError:
        return f"no answer within {seconds:g}s"
    except (TrainyardError, OSError) as error:
        return str(error)
    except Exception as error:
        _log.exception("a probe of pod %s: a defect of the node agent", target.pod)
        return f"{type(error).__name__}: {error}"


async def run_hook(target: ProbeTarget, hook: Mapping[str, Any]) -> str:
    """A postStart or preStop hook; returns what went wrong."""
    try:
        async with asyncio.timeout(_HOOK_SECONDS):
            if "sleep" in hook:
                await asyncio.sleep(float(hook["sleep"]["seconds"]))
                return ""
            return await _run_action(target, hook)
    except (TrainyardError, OSError, TimeoutError) as error:
        return str(error) or "took too long"
    except Exception as error:
        _log.exception("a hook of pod %s: a defect of the node agent", target.pod)
        return f"{type(error).__name__}: {error}"


async def _run_action(target: ProbeTarget, action: Mapping[str, Any]) -> str:
    if "exec" in action:
        argv = action["exec"]["command"]
        wanted = new_command(target.pod, target.run.name, argv)
        code, output = await run_command(target.runtime, wanted)
        tail = output[-500:].decode(errors="replace").strip()
        detail = f": {tail}" if tail else ""
        return f"its command ended with {code}{detail}" if code else ""
    spec = action.get("httpGet") or action.get("tcpSocket") or action.get("grpc")
    if spec is None:
        return f"unsupported action {', '.join(action)}"
    port = named_port(target.run.spec, spec["port"])
    host = spec.get("host") or target.address
    try:
        connection = await open_connection(target.runtime, target.pod, host, port)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise TrainyardError(f"cannot connect to {host}:{port}: {why}") from error
    if "tcpSocket" in action:
        connection.close()
        return ""
    place = f"{target.address}:{port}"
    if "grpc" in action:
        return await _talk(connection, partial(_grpc, place, spec))
    tls_host = host if spec.get("scheme") == "HTTPS" else ""
    return await _talk(connection, partial(_http_get, place, spec), tls_host)


async def _talk(connection: socket.socket, speak: _Talk, tls_host: str = "") -> str:
    """Talk over a connection and close it; returns what is wrong, or ""."""
    tls: dict[str, Any] = {}
    if tls_host:  # whose certificate it is does not matter, as to a kubelet
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        tls = {"ssl": context, "server_hostname": tls_host}
    try:
        reader, writer = await asyncio.open_connection(sock=connection, **tls)
    except BaseException:
        connection.close()
        raise
    try:
        return await speak(reader, writer)
    finally:
        writer.transport.abort()


async def _grpc(
    place: str, spec: Mapping[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> str:
    from trainyard.embedded.node.containers import grpc_health

    return await grpc_health.check_health(reader, writer, place, spec.get("service") or "")


async def _http_get(
    host: str, spec: Mapping[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> str:
    lines = [f"GET {spec.get('path') or '/'} HTTP/1.1", f"Host: {host}", "Connection: close"]
    lines += [f"{h['name']}: {h['value']}" for h in spec.get("httpHeaders", ())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    answer = b""
    while b"\r\n" not in answer and len(answer) < _STATUS_LINE_BYTES:
        data = await reader.read(_STATUS_LINE_BYTES)
        if not data:
            break
        answer += data
    first = answer.partition(b"\r\n")[0].decode("latin-1").split(" ")
    code = int(first[1]) if len(first) > 1 and first[1].isdigit() else 0
    return "" if 200 <= code < 400 else f"HTTP probe failed with statuscode: {code}"


def named_port(container: Mapping[str, Any], port: int | str) -> int:
    """A port number, or the number of the container's port of that name."""
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for entry in container.get("ports", ()):
        if entry.get("name") == port:
            return int(entry["containerPort"])
    raise TrainyardError(f"container {container['name']!r} has no port named {port!r}")


async def open_connection(
    runtime: ContainerRuntime, pod: str, address: str, port: int
) -> socket.socket:
    """A connection to ``address:port`` made from inside the pod's network."""
    connection = await runtime.open_socket(pod)
    connection.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connection, (address, port))
    except BaseException:
        connection.close()
        raise
    return connection
