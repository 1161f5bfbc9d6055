"""The Kubernetes that a manifest is to be judged as."""

from __future__ import annotations

from trainyard.kinds.server_compatibility import nearest_known_version
from trainyard.schema.errors import TrainyardError
from trainyard.schema.server_version import Version, parse

CURRENT = "current"


def version_of(cluster: str, kubeconfig: str | None = None, context: str | None = None) -> Version:
    """A version as `1.27`; of `current` that of the kubeconfig's cluster, which is asked.

    Newer ones than are known stand for the newest that is. Raises Error.
    """
    found = _asked(kubeconfig, context) if cluster == CURRENT else parse(cluster)
    if found is None:
        text = f"{cluster!r} is no version of Kubernetes; write it like 1.27, or {CURRENT!r}"
        raise TrainyardError(text)
    return nearest_known_version(found)


def _asked(kubeconfig: str | None, context: str | None) -> Version:
    """Without a name, of `$KUBECONFIG` or `~/.kube/config`, as kubectl."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from trainyard.kube.client import Client

    async def ask() -> Version:
        async with await Client.from_kubeconfig(kubeconfig, context) as client:
            return await client.server_version()

    with ThreadPoolExecutor(1) as pool:  # in a notebook this thread has a loop already
        return pool.submit(lambda: asyncio.run(ask())).result()
