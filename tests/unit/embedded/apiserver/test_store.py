"""Durability: what was acknowledged survives, what cannot be kept is refused with a reason."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.small_disk import on_small_disk
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.registry import Registry
from trainyard.embedded.storage.row_writes import StorageError, Write
from trainyard.embedded.storage.store import Store

WRITER = """
import asyncio, sys
from pathlib import Path
from trainyard.embedded.registry import Registry
from trainyard.embedded.storage.store import Store

async def main():
    registry = Registry(Store(Path(sys.argv[1])))
    await registry.ensure_system_objects()

    async def write(client):
        for number in range(100_000):
            name = f"c{client}-{number}"
            made = await registry.create("configmaps", {"metadata": {"name": name}})
            print(name, made["metadata"]["resourceVersion"], flush=True)

    await asyncio.gather(*(write(client) for client in range(8)))

asyncio.run(main())
"""


def test_kill_9_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    acknowledged = {}
    for line in writer.stdout:
        name, _, version = line.strip().partition(" ")
        if not version.isdigit() or not line.endswith("\n"):
            break
        acknowledged[name] = version
        if len(acknowledged) == 500:
            os.kill(writer.pid, signal.SIGKILL)
    writer.wait(120)
    writer.stdout.close()
    assert len(acknowledged) >= 500

    registry = Registry(Store(path), resources=RESOURCES)
    stored = {
        obj["metadata"]["name"]: obj["metadata"]["resourceVersion"]
        for obj in registry.list("configmaps")
    }
    assert acknowledged.items() <= stored.items()
    assert registry.revision >= max(int(version) for version in acknowledged.values())
    asyncio.run(registry.close())


async def test_versions_go_on_after_a_restart(tmp_path: Path) -> None:
    first = Registry(Store(tmp_path / "state.db"), resources=RESOURCES)
    await first.ensure_system_objects()
    await first.create("configmaps", {"metadata": {"name": "gone"}})
    await first.delete("configmaps", "default", "gone")
    revision = first.revision
    await first.close()
    second = Registry(Store(tmp_path / "state.db"), resources=RESOURCES)
    assert second.revision == revision
    assert second.list("configmaps") == []
    made = await second.create("configmaps", {"metadata": {"name": "new"}})
    assert int(made["metadata"]["resourceVersion"]) == revision + 1
    await second.close()


async def test_a_full_disk_refuses_the_write_and_serves_what_there_is(tmp_path: Path) -> None:
    registry = Registry(Store(tmp_path / "state.db"), resources=RESOURCES)
    await registry.ensure_system_objects()
    await registry.create("configmaps", {"metadata": {"name": "before"}})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, limits[1]))
    try:
        large = {"metadata": {"name": "large"}, "data": {"x": "y" * (256 << 10)}}
        with pytest.raises(StorageError, match=r"cannot write to .*state\.db"):
            await registry.create("configmaps", large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [obj["metadata"]["name"] for obj in registry.list("configmaps")] == ["before"]
    await registry.create("configmaps", {"metadata": {"name": "after"}})
    await registry.close()
    again = Registry(Store(tmp_path / "state.db"), resources=RESOURCES)
    assert [obj["metadata"]["name"] for obj in again.list("configmaps")] == ["after", "before"]
    await again.close()


def test_a_state_folder_in_use_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.commit([], 1)
    with pytest.raises(StorageError, match="another trainyard process is using it"):
        Store(tmp_path / "state.db")
    store.close()


def test_a_state_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot create the state folder .*/file/state"):
        Store(tmp_path / "file" / "state" / "state.db")


def test_a_damaged_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StorageError, match="the file is damaged"):
        Store(tmp_path / "state.db")


def test_only_its_owner_can_read_the_file_wherever_it_lies(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    Store(tmp_path / "state.db").close()
    assert (tmp_path / "state.db").stat().st_mode & 0o777 == 0o600


CROWDED = """
import asyncio, os, sys
from pathlib import Path
from trainyard.embedded.registry import Registry
from trainyard.embedded.storage.store import Store
from trainyard.embedded.storage.row_writes import DiskFull

ballast = open(sys.argv[1] + "/ballast", "wb", buffering=0)

def fill():
    '''What others do who write to the same disk: take every byte that is free.'''
    for size in (1 << 16, 1):
        try:
            while True:
                ballast.write(bytes(size))
        except OSError:
            pass

def marked(copy):
    copy["metadata"]["annotations"] = {"seen": "x" * 200}
    return copy

async def main():
    registry = Registry(Store(Path(sys.argv[1]) / "state" / "state.db"))
    await registry.ensure_system_objects()
    for number in range(1500):
        obj = {"metadata": {"name": f"c{number}"}, "data": {"x": "y" * 2000}}
        await registry.create("configmaps", obj)
    made = 1500
    try:
        while True:
            fill()
            obj = {"metadata": {"name": f"c{made}"}, "data": {"x": "y" * 2000}}
            await registry.create("configmaps", obj)
            made += 1
    except DiskFull as error:
        print(error)
    for number in range(made):
        fill()
        await registry.update("configmaps", "default", f"c{number}", marked)
    for number in range(made):
        fill()
        await registry.delete("configmaps", "default", f"c{number}")
        if number % 100 == 0:
            try:
                await registry.create("secrets", {"metadata": {"name": f"s{number}"}})
            except DiskFull:
                print("refused")
    os.ftruncate(ballast.fileno(), 0)
    await registry.create("secrets", {"metadata": {"name": "after"}})
    await registry.close()
    again = Registry(Store(Path(sys.argv[1]) / "state" / "state.db"))
    print(len(again.list("configmaps")), [s["metadata"]["name"] for s in again.list("secrets")])
    await again.close()

asyncio.run(main())
"""


def test_on_a_full_disk_all_can_be_deleted_and_with_room_all_goes_on() -> None:
    """Although somebody else takes all room at once that is given up."""
    with on_small_disk(CROWDED, "size=48m") as (_, done):
        assert done.returncode == 0, done.stderr
    [full, *refused, rest] = done.stdout.splitlines()
    assert "the disk of the state folder" in full
    assert "no space left on device" in full
    assert refused
    assert set(refused) == {"refused"}
    assert rest == "0 ['after']"


def test_what_is_set_aside_is_given_back_when_the_store_is_closed(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.commit([], 1)
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) > 16 << 20
    store.close()
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 1 << 20


def test_a_file_with_the_former_table_is_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    former = """
        CREATE TABLE objects (
            resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL,
            PRIMARY KEY (resource, namespace, name)
        ) WITHOUT ROWID;
        INSERT INTO objects VALUES ('configmaps', 'default', 'old', '{}');
        PRAGMA user_version = 1;
    """
    with closing(sqlite3.connect(path)) as db:
        db.executescript(former)
    store = Store(path)
    store.commit([Write("configmaps", "default", "old", b"1"), Write("pods", "a", "b", b"2")], 7)
    store.commit([Write("pods", "a", "b", b"3"), Write("configmaps", "default", "gone", None)], 8)
    store.close()
    again = Store(path)
    assert sorted(again.rows()) == [
        ("configmaps", "default", "old", b"1"),
        ("pods", "a", "b", b"3"),
    ]
    assert again.revision() == 8
    again.close()
