"""`older_state.db.gz` was written by the release before the cluster was called embedded."""

from __future__ import annotations

import gzip
from pathlib import Path

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.registry import Registry
from trainyard.embedded.storage.store import Store

OLDER = Path(__file__).with_name("older_state.db.gz")
JOBS = "pytorchtrainingjobs.batch.tensorstack.dev"


async def test_a_database_of_an_older_release_is_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(gzip.decompress(OLDER.read_bytes()))
    registry = Registry(Store(path), resources=RESOURCES)
    assert registry.corrupt_objects == ()
    assert registry.get("configmaps", "default", "large")["data"] == {"p": "import os\n" * 1700}
    assert registry.get("pods", "default", "p")["status"]["phase"] == "Succeeded"
    assert registry.get("queues.scheduler.tensorstack.dev", "", "q")["spec"] == {"priority": 3}
    job = registry.get(JOBS, "default", "j")
    older = registry.revision

    await registry.update(
        JOBS,
        "default",
        "j",
        lambda obj: {**obj, "status": {"phase": "Failed"}},
        subresource="status",
    )
    await registry.close()

    again = Registry(Store(path), resources=RESOURCES)
    found = again.get(JOBS, "default", "j")
    assert (found["spec"], found["status"]) == (job["spec"], {"phase": "Failed"})
    assert found["metadata"]["uid"] == job["metadata"]["uid"]
    assert again.revision == older + 1
    await again.close()
