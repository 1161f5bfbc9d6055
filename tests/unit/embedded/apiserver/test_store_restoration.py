"""A store that was damaged comes back: from what can be read of it, and from its copy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from trainyard.embedded.storage.row_writes import StorageError, StoreDamaged, Write
from trainyard.embedded.storage.store import Store
from trainyard.embedded.storage.store_backup import backup_path
from trainyard.embedded.storage.store_restoration import restore_store

NAMES = [f"c{number:04}" for number in range(2000)]
BODY = b"x" * 500


def filled(path: Path) -> Path:
    """A store with a copy, closed in order."""
    store = Store(path)
    store.commit([Write("configmaps", "default", name, BODY) for name in NAMES], 2000)
    store.close()
    return path


def names(path: Path) -> list[str]:
    store = Store(path)
    try:
        return sorted(name for _, _, name, _ in store.rows())
    finally:
        store.close()


@pytest.mark.parametrize("size", [None, 0, 4096, 0.3, 0.9])
def test_a_store_cut_to_any_size_is_not_opened_and_comes_back(
    tmp_path: Path, size: float | None
) -> None:
    path = filled(tmp_path / "state.db")
    whole = path.stat().st_size
    if size is None:
        path.unlink()
    else:
        os.truncate(path, int(size if size in (0, 4096) else whole * size))
    with pytest.raises(StoreDamaged, match="trainyard doctor --restore"):
        names(path)
    restored = restore_store(path)
    assert restored is not None
    assert restored.from_store + restored.from_backup == len(NAMES)
    assert (restored.from_store > 0) == (size in (0.3, 0.9))
    assert names(path) == NAMES
    assert restored.damaged.exists() == (size is not None)
    left = {each.name for each in tmp_path.iterdir() if restored.damaged.name not in each.name}
    assert left - {"state.db-shm"} == {"state.db", "state.db.backup"}


def test_pages_that_are_damaged_cost_the_objects_in_them_alone_where_there_is_no_copy(
    tmp_path: Path,
) -> None:
    path = filled(tmp_path / "state.db")
    backup_path(path).unlink()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xa5" * 8192)
    restored = restore_store(path)
    assert restored is not None
    assert restored.backup_time == 0
    assert 0.9 * len(NAMES) < len(names(path)) < len(NAMES)


def test_a_store_in_order_is_left_alone(tmp_path: Path) -> None:
    path = filled(tmp_path / "state.db")
    before = path.read_bytes()
    assert restore_store(path) is None
    assert path.read_bytes() == before


def test_what_cannot_be_read_at_all_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError, match="nothing can be read"):
        restore_store(path)
    assert path.read_bytes() == b"no database" * 1000


def test_a_damaged_store_does_not_replace_its_copy(tmp_path: Path) -> None:
    path = filled(tmp_path / "state.db")
    copy = backup_path(path).read_bytes()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xa5" * 8192)
    store = Store(path)
    with suppress(StorageError):
        store.commit([Write("configmaps", "default", "new", BODY)], 2001)
    store.close()
    assert backup_path(path).read_bytes() == copy


def test_a_store_that_was_removed_leaves_no_copy_for_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = Store(path)
    path.unlink()
    store.close()
    assert not backup_path(path).exists()


def test_no_resource_version_is_given_out_twice(tmp_path: Path) -> None:
    path = filled(tmp_path / "state.db")
    copy = backup_path(path).read_bytes()
    store = Store(path)
    store.commit([], 5000)
    store.close()
    backup_path(path).write_bytes(copy)
    os.truncate(path, 0)
    restore_store(path)
    store = Store(path)
    assert store.revision() > 5000
    store.close()


CHANGING = """
import asyncio, sys
from pathlib import Path
from trainyard.embedded.registry import Registry
from trainyard.embedded.storage import committer
from trainyard.embedded.storage.store import Store

committer._BACKUP_SECONDS = 0.01
committer._BACKUP_SHARE = 1.0

async def main():
    registry = Registry(Store(Path(sys.argv[1])))
    await registry.ensure_system_objects()
    copying = asyncio.create_task(registry.keep_backup())
    for number in range(100_000):
        await registry.create("configmaps", {"metadata": {"name": f"c{number}"}})
        print(number, flush=True)

asyncio.run(main())
"""


def test_the_copy_of_a_store_in_use_is_whole_whenever_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", CHANGING, str(path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            made = 0
            for made, _ in enumerate(writer.stdout):
                if made > 100 and backup_path(path).exists():
                    break
            os.kill(writer.pid, signal.SIGKILL)
        for each in tmp_path.glob("state.db-*"):
            each.unlink()
        os.truncate(path, 0)
        restored = restore_store(path)
        assert restored is not None
        found = names(path)
        assert {f"c{number}" for number in range(len(found) // 2)} <= set(found)
        for each in tmp_path.iterdir():
            each.unlink()
