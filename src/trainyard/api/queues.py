"""Queues, by which jobs share the machine or the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainyard.api.connection import Connection
from trainyard.client.cluster_target import CommandError
from trainyard.client.object_views import Object
from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.errors import AlreadyExists, NotFound

_KIND = KINDS["Queue"]
_QUEUES = _KIND.resource
Objects = list[Object]
_HEAD = {"apiVersion": _KIND.api_version, "kind": _KIND.kind}


class Queues(Connection):
    """What is asked of, and done to, Queues."""

    async def queues(self) -> Objects:
        """All Queues, by name."""
        found, _ = await (await self.target()).client.list(_QUEUES)
        found.sort(key=lambda queue: str(queue["metadata"]["name"]))
        return [{**_HEAD, **queue} for queue in found]

    async def queue(self, name: str) -> Object:
        """One Queue; raises CommandError where there is none of the name."""
        try:
            return await (await self.target()).client.get(_QUEUES, name)
        except NotFound:
            names = [str(queue["metadata"]["name"]) for queue in await self.queues()]
            known = ", ".join(names) or "none"
            raise CommandError(f"there is no queue {name}; there are: {known}") from None

    async def create_queue(
        self,
        name: str,
        *,
        quota: Mapping[str, str] = MappingProxyType({}),
        priority: int | None = None,
        max_duration: str | None = None,
        closed: bool = False,
    ) -> Object:
        """Create a Queue.

        `quota` limits resources, as `{"nvidia.com/gpu": "8"}`; `priority` is 0 to 100, of which
        higher goes first; pods older than `max_duration` (`1d12h`) are ended; while it is `closed`,
        nothing starts through it. Raises CommandError when it breaks a rule, or exists.
        """
        queue = new_queue(
            name, quota=quota, priority=priority, max_duration=max_duration, closed=closed
        )
        try:
            return await (await self.target()).client.create(_QUEUES, queue)
        except AlreadyExists:
            raise CommandError(
                f"queue {name} exists already; change it with kubectl, or delete it first "
                f"(trainyard queue delete {name})"
            ) from None

    async def close_queue(self, name: str) -> None:
        """Let nothing more start through a Queue; what runs goes on."""
        await self._set_closed(name, closed=True)

    async def open_queue(self, name: str) -> None:
        """Let jobs start through a closed Queue again."""
        await self._set_closed(name, closed=False)

    async def delete_queue(self, name: str) -> None:
        """Delete a Queue; jobs in it keep running."""
        queue = await self.queue(name)
        client = (await self.target()).client
        await client.delete(_QUEUES, name, uid=queue["metadata"]["uid"])

    async def _set_closed(self, name: str, *, closed: bool) -> None:
        await self.queue(name)
        client = (await self.target()).client
        await client.patch(_QUEUES, name, {"spec": {"closed": closed}})


def new_queue(
    name: str,
    *,
    quota: Mapping[str, str] = MappingProxyType({}),
    priority: int | None = None,
    max_duration: str | None = None,
    closed: bool = False,
) -> Object:
    """A Queue from what the user said; CommandError when it breaks a rule."""
    from trainyard.kinds.kind_admission import admit

    wanted = {
        "quota": {"requests": dict(quota)} if quota else None,
        "priority": priority,
        "maxDuration": max_duration,
        "closed": closed or None,
    }
    spec = {field: value for field, value in wanted.items() if value is not None}
    admission = admit({**_HEAD, "metadata": {"name": name}, "spec": spec})
    if admission.errors:
        problems = "; ".join(problem.detail for problem in admission.errors)
        raise CommandError(f"cannot create queue {name}: {problems}")
    return admission.obj
