"""Logs of pods that are gone: the embedded cluster keeps them in its state folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainyard.cli.loglines import Lines, Options, Printer
from trainyard.client.jobs import Found
from trainyard.client.target import CommandError
from trainyard.shim.logs import LogOptions, read_log


async def print_kept(folder: Path, job: Found, options: Options) -> None:
    """Print each replica's last log; with `previous`, the one before it."""
    back = 1 if options.previous else 0
    found = dict(kept_logs(folder, job, options.container, back=back))
    if options.replica:
        short = options.replica.removeprefix(f"{job.base}-")
        found = {name: path for name, path in found.items() if name == short}
    if not found:
        whose = f"replica {options.replica} of {job}" if options.replica else str(job)
        why = "it was not restarted" if back else f"nothing of it has started ({job.phase})"
        which = "earlier log" if back else "log"
        raise CommandError(
            f"there is no {which} of {whose}: {why}; `trainyard explain {job.name}` tells more"
        )
    show = Printer(is_prefixed=not options.replica and len(found) > 1)
    for replica, path in found.items():
        lines = Lines(show, replica)
        async for chunk in _read(path, options):
            lines.feed(chunk)
        lines.end()


def kept_logs(
    folder: Path, job: Found, container: str = "", *, back: int = 0
) -> Iterator[tuple[str, Path]]:
    """Replica and file of every replica's last log; `back` 1: of the last but one.

    Each pod has a folder `<namespace>_<pod>_<uid>`, and in it one per container with a log per
    run of it. A restarted replica has a pod, and so a folder, of its own each time.
    """
    by_replica: dict[str, list[tuple[float, Path]]] = {}
    prefix = f"{job.namespace}_{job.base}-"
    for pod in sorted((folder / "pods").glob(f"{prefix}*")):
        replica = pod.name.removeprefix(prefix).rpartition("_")[0]
        for path in pod.glob(f"{container or '*'}/*.log"):
            by_replica.setdefault(replica, []).append((path.stat().st_mtime, path))
    for replica, logs in sorted(by_replica.items()):
        training = container or _training(job, [path.parent.name for _, path in logs])
        same = sorted(entry for entry in logs if entry[1].parent.name == training)
        if len(same) > back:
            yield replica, same[-1 - back][1]


def _training(job: Found, names: list[str]) -> str:
    """The training container by what status says of the replicas; else the first name."""
    for task in job.status.get("tasks") or ():
        for replica in task.get("replicas") or ():
            for told in replica.get("containers") or ():
                if told.get("name") in names:
                    return str(told["name"])
    return sorted(names)[0]


def _read(path: Path, options: Options) -> AsyncIterator[bytes]:
    ago = options.since_seconds
    since = None if ago is None else datetime.now(UTC) - timedelta(seconds=ago)
    wanted = LogOptions(tail=options.tail, timestamps=options.timestamps, since=since)
    return read_log(str(path), wanted, lambda: True)
