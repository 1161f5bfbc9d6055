"""Attached to containers on the node: their input, terminal and output."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.embedded.node_cluster import PATIENCE, Cluster, cluster
from trainyard.embedded.node.containers.exec_sessions import AttachSession
from trainyard.schema.errors import TrainyardError

MUCH = "seq -f %0200.0f 20000"
"""4 MB, which is more than pipes and queues hold."""
LINES = [f"{number:0200}" for number in range(1, 20001)]


@pytest.fixture(params=["auto", "plain"])
async def node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    if request.param == "auto" and os.geteuid() != 0:
        pytest.skip("needs root")
    async with cluster(tmp_path / "state", isolation=request.param) as running:
        yield running


async def attached(node: Cluster, name: str, *, stdin: bool = True) -> AttachSession:
    await node.phase(name, "Running")
    return await node.agent.attach(node.pod(name), "main", stdin=stdin)


async def until(session: AttachSession, text: bytes) -> bytes:
    """What is shown, up to this."""
    found = b""
    async with asyncio.timeout(PATIENCE):
        async for chunk in session.output():
            found += chunk.data
            if text in found:
                return found
    raise AssertionError(f"no {text!r} in {found[-2000:]!r}")


async def everything(session: AttachSession) -> str:
    async with asyncio.timeout(PATIENCE):
        return b"".join([chunk.data async for chunk in session.output()]).decode()


async def test_input_stays_open_or_ends_with_the_first(node: Cluster) -> None:
    script = ["sh", "-c", "while read x; do echo got $x; done; echo over"]
    await node.create("open", script, container={"stdin": True})
    await node.create("once", script, container={"stdin": True, "stdinOnce": True})
    for word in (b"one", b"two"):
        session = await attached(node, "open")
        await session.write(word + b"\n")
        assert await until(session, b"got " + word + b"\n")
        await session.close_stdin()
        assert await everything(session) == ""  # it is left
        await session.close()
    watching = await attached(node, "once", stdin=False)
    session = await attached(node, "once")
    await session.write(b"only\n")
    await until(session, b"got only\n")
    second = await attached(node, "once")
    await second.write(b"to nobody\n")
    await session.close()
    assert await everything(watching) == "got only\nover\n"
    assert await everything(second) == "over\n"
    for each in (watching, second):
        await each.close()
    await node.phase("once", "Succeeded")
    assert node.pod("open")["status"]["phase"] == "Running"
    assert await node.log("open") == "got one\ngot two\n"


async def test_without_stdin_the_input_is_empty(node: Cluster) -> None:
    await node.create("p", ["sh", "-c", "cat; echo read; sleep 1000"])
    await node.printed("p")
    session = await attached(node, "p")
    await session.write(b"nobody reads this")
    await session.close_stdin()
    await session.close()
    assert await node.log("p") == "read\n"


async def test_a_terminal_has_size_job_control_and_an_end(node: Cluster) -> None:
    script = "read x; tty; stty size; echo $TERM; read y; cat; exit 3"
    await node.create("p", ["sh", "-c", script], container={"stdin": True, "tty": True})
    session = await attached(node, "p")
    await session.resize(77, 33)
    await session.write(b"\n")
    shown = (await until(session, b"xterm\r\n")).decode().split()
    assert shown[0].startswith("/dev/pts/")
    assert shown[1:3] == ["33", "77"]
    await session.close()  # a terminal stays
    session = await attached(node, "p")
    await session.write(b"\nto cat\n")
    await until(session, b"to cat\r\nto cat\r\n")
    await session.write(b"\x04")
    await everything(session)
    await session.close()
    pod = await node.phase("p", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert "33 77\r\n" in await node.log("p")


async def test_who_is_slow_gets_everything(node: Cluster) -> None:
    await node.create("p", ["sh", "-c", f"read x; {MUCH}"], container={"stdin": True})
    session = await attached(node, "p")
    await session.write(b"go\n")
    async with asyncio.timeout(PATIENCE):
        first = await anext(session.output())
        rest = await everything(session)
    assert (first.data.decode() + rest).split("\n")[:-1] == LINES
    await session.close()
    await node.phase("p", "Succeeded")
    assert (await node.log("p")).split("\n")[:-1] == LINES


async def test_who_is_gone_holds_nothing_up(node: Cluster) -> None:
    await node.create("p", ["sh", "-c", f"read x; {MUCH}"], container={"stdin": True})
    idle, gone = await attached(node, "p", stdin=False), await attached(node, "p")
    await gone.write(b"go\n")
    async with asyncio.timeout(PATIENCE):
        await anext(gone.output())
    await gone.close()
    await idle.close()
    await node.phase("p", "Succeeded")
    assert (await node.log("p")).split("\n")[:-1] == LINES


async def test_what_does_not_run_is_said(node: Cluster) -> None:
    await node.run("p", ["true"])
    with pytest.raises(TrainyardError, match="cannot attach to container 'main'"):
        await node.agent.attach(node.pod("p"), "main")
