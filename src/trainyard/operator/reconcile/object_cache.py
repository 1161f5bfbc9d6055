"""What the controller knows of the cluster: one cache per resource, indexed by owner.

A watch lags behind. A controller that acts on a lagging copy counts one failure twice or deletes
the replacement of what it meant to delete. So each cache also takes in the answers to the
controller's own writes, and lets nothing older overwrite them: resourceVersions of one resource
are comparable as integers (https://kubernetes.io/docs/reference/using-api/api-concepts/
#resource-versions), and a UID that was seen to be gone never comes back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from trainyard.kube.reflector import Sink


class Identified(Protocol):
    """What a cache needs to know of an object."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


ObjectKey = tuple[str, str]
"""Namespace and name."""
_REMEMBERED_GONE = 20_000

T = TypeVar("T", bound=Identified)


def version_of(resource_version: str) -> int:
    """A resourceVersion as a number; 0, older than all others, if it is not numeric."""
    return int(resource_version) if resource_version.isdigit() else 0


class ObjectCache(Generic[T]):
    """The objects of one resource.

    `owner_of` gives the UID of the job that an object names as its owner, which counts only in the
    job's own namespace (decision 93). `changed` is called with an object whenever something other
    than the controller's own write has changed it.
    """

    def __init__(
        self,
        owner_of: Callable[[T], str],
        changed: Callable[[T], None],
        *,
        by_namespace: bool = False,
    ) -> None:
        """`by_namespace`: each namespace has a watch of its own."""
        self._owner_of = owner_of
        self._by_namespace = by_namespace
        self._changed = changed
        self._items: dict[ObjectKey, T] = {}
        self._by_owner: dict[tuple[str, str], dict[ObjectKey, T]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._reached: dict[str, int] = {}
        """The last resourceVersion that a watch has shown, by namespace; "" for a watch of all."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def get(self, namespace: str, name: str) -> T | None:
        """The object of that name, if it is cached."""
        return self._items.get((namespace, name))

    def owned_by(self, namespace: str, uid: str) -> Collection[T]:
        """Every object that the job with this UID owns, in the job's namespace."""
        return self._by_owner.get((namespace, uid), {}).values()

    def for_namespace(self, namespace: str | None) -> Sink[T]:
        """The sink for a reflector of that namespace; None: of all namespaces."""
        return self if namespace is None else NamespaceView(self, namespace)

    # Called by reflectors.
    def replace(
        self, items: Sequence[T], resource_version: str, namespace: str | None = None
    ) -> None:
        """Take in a fresh list, of a namespace or of all, and drop what is no longer in it."""
        listed = {(item.namespace, item.name) for item in items}
        as_of = version_of(resource_version)
        for key, item in list(self._items.items()):
            if namespace is not None and item.namespace != namespace:
                continue
            # An object that we wrote after the list was made is missing in it, but not gone.
            if key not in listed and (version_of(item.resource_version) <= as_of or not as_of):
                self._drop(key)
                self._changed(item)
        for item in items:
            self.upsert(item)
        self._advance(namespace or "", as_of)

    def upsert(self, item: T) -> None:
        """Take in an added or changed object, unless a newer version is cached."""
        self._advance(self._watch_scope(item), version_of(item.resource_version))
        if self._put(item):
            self._changed(item)

    def remove(self, item: T) -> None:
        """Take in a deletion, unless a newer object has the name by now."""
        self._advance(self._watch_scope(item), version_of(item.resource_version))
        key = (item.namespace, item.name)
        known = self._items.get(key)
        if known is not None and known.uid == item.uid:
            self._drop(key)
            self._changed(item)

    # Called by the controller for its own requests.
    def record_own_write(self, item: T) -> None:
        """Take in the answer to an own write, or to a read of one object, unless it is outdated."""
        version = version_of(item.resource_version)
        reached = self._reached.get(self._watch_scope(item), 0)
        if self.get(item.namespace, item.name) is None and 0 < version <= reached:
            return  # the watch is past it already: the object is gone again
        self._put(item)

    def forget(self, item: T) -> None:
        """Remember that an object is gone, as the answer to an own request said."""
        key = (item.namespace, item.name)
        self._gone[item.uid] = None
        if len(self._gone) > _REMEMBERED_GONE:
            self._gone.popitem(last=False)
        known = self._items.get(key)
        if known is not None and known.uid == item.uid:
            self._drop(key)

    def _watch_scope(self, item: T) -> str:
        return item.namespace if self._by_namespace else ""

    def _advance(self, namespace: str, version: int) -> None:
        self._reached[namespace] = max(self._reached.get(namespace, 0), version)

    def _put(self, item: T) -> bool:
        if item.uid in self._gone:
            return False
        key = (item.namespace, item.name)
        known = self._items.get(key)
        version = version_of(item.resource_version)
        if known is not None and version and version <= version_of(known.resource_version):
            return False
        if known is not None:
            self._drop(key)
        self._items[key] = item
        self._by_owner.setdefault((item.namespace, self._owner_of(item)), {})[key] = item
        return True

    def _drop(self, key: ObjectKey) -> None:
        item = self._items.pop(key)
        owner = (item.namespace, self._owner_of(item))
        owned = self._by_owner[owner]
        del owned[key]
        if not owned:
            del self._by_owner[owner]


class NamespaceView(Generic[T]):
    """The part of a cache that a reflector of one namespace fills."""

    def __init__(self, store: ObjectCache[T], namespace: str) -> None:
        self._store, self._namespace = store, namespace
        self.upsert, self.remove = store.upsert, store.remove

    def replace(self, items: Sequence[T], resource_version: str) -> None:
        """Take in a fresh list of the namespace."""
        self._store.replace(items, resource_version, self._namespace)
