"""A process that owns a node, to be killed: ``python -m tests.embedded.node_owner DIR run|up …``.

Starts the pods given as JSON on standard input, one line of specs by name; prints a line once all
of them run; then waits to be killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.embedded.node_cluster import cluster
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.node.pod_runtime_process import Isolation, start_pod_runtime
from trainyard.embedded.registry import Registry
from trainyard.embedded.storage.store import Store


async def main(state_dir: Path, mode: str, isolation: Isolation) -> None:
    handle = start_pod_runtime(state_dir, isolation=isolation, die_with_parent=mode == "run")
    registry = Registry(Store(state_dir / "cluster.db"), resources=RESOURCES)
    await registry.ensure_system_objects()
    async with cluster(state_dir, handle=handle, registry=registry, shut_down=False) as node:
        for name, command in json.loads(sys.stdin.readline()).items():
            await node.create(name, command)
            await node.phase(name, "Running")
        print(handle.pid, flush=True)
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))  # type: ignore[arg-type]
