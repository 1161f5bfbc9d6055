"""The table of what an API server serves, collected from the files of `served` and other folders.

A file that has a `SERVED` (a `Served`, or a tuple of them) is a resource. Where that depends on
what the cluster was composed with, the file has a function `served` that takes the `Extension`.
There is no other list of resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from trainyard.embedded.cluster_extension import NO_EXTENSION, Extension
from trainyard.embedded.resources import served
from trainyard.embedded.resources.resource import Served


class Resources:
    """Resources by name, in their order."""

    def __init__(self, *folders: Path, extension: Extension = NO_EXTENSION) -> None:
        """`folders` hold files of resources besides those of `served`."""
        self._folders = folders
        self.extension = extension

    @cached_property
    def _by_name(self) -> Mapping[str, Served]:
        rows = [row for module in self._modules() for row in self._rows(module)]
        by_name: dict[str, Served] = {}
        for row in sorted(rows, key=lambda row: (row.order, row.name)):
            if row.name in by_name:
                raise ValueError(f"two rows of files of resources serve {row.name}")
            by_name[row.name] = row
        return by_name

    @cached_property
    def _by_url(self) -> Mapping[tuple[str, str, str], Served]:
        return {row.resource[:3]: row for row in self}

    @cached_property
    def _by_kind(self) -> Mapping[tuple[str, str], Served]:
        stored = (row for row in self if not (row.view_of or row.alternative))
        return {(row.resource.api_version, row.kind): row for row in stored}

    def _modules(self) -> Iterator[ModuleType]:
        for path in Path(served.__path__[0]).glob("*.py"):
            yield import_module(f"{served.__name__}.{path.stem}")
        for folder in self._folders:
            yield from map(_load, sorted(folder.glob("*.py")))

    def _rows(self, module: ModuleType) -> Iterable[Served]:
        if hasattr(module, "served"):
            rows: Iterable[Served] = module.served(self.extension)
            return rows
        found: Served | tuple[Served, ...] = getattr(module, "SERVED", ())
        return (found,) if isinstance(found, Served) else found

    def __iter__(self) -> Iterator[Served]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> Served:
        return self._by_name[name]

    def get(self, name: str) -> Served | None:
        """The resource of this name (`pods`, `queues.scheduler.…`), if it is served."""
        return self._by_name.get(name)

    def at(self, group: str, version: str, plural: str) -> Served | None:
        """The resource at this place of URLs, or None."""
        return self._by_url.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Served | None:
        """The resource that stores objects of this kind."""
        return self._by_kind.get((api_version, kind))


def _load(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a file of Python")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
