"""Imports the modules and reads the files that a cluster which is up may need later.

Much is imported only when it is first needed, so that a cluster is up sooner. An upgrade replaces
its files meanwhile, and half of one version with half of another fails. So the rest is imported
once the cluster is up.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Iterator
from importlib import import_module

from trainyard.composition.garbage_collection import collect_garbage_again

_OF_CLUSTER = (
    "trainyard.embedded",
    "trainyard.evidence",
    "trainyard.kinds",
    "trainyard.lifecycle",
    "trainyard.operator.channel",
    "trainyard.operator.reconcile",
    "trainyard.schema",
)
"""What a cluster and its controller come to; tests/unit/gates/test_late_imports.py judges it."""
OF_REPORT = (
    "trainyard.api.diagnosis_inputs",
    "trainyard.cli.failure_card_text",
    "trainyard.composition.expected_errors",
    "trainyard.diagnosis",
)
"""What `trainyard run` needs at the end of a job, which may have taken days."""
PROGRAMS = "trainyard.payloads"
"""They are never imported, but their text is sent to pods."""
_FIRST_SECONDS = 3.0
"""Before the first import of a run: its job comes first, and may have ended by then."""
_log = logging.getLogger(__name__)


async def import_all(*, at_once: bool) -> None:
    """Import and read all that a cluster may need; 0.14 s of processor time.

    A cluster that outlives its command does so `at_once`: it mostly gets its first job from the
    next command, which takes longer to start than this takes. In a run the job comes first.
    """
    if not at_once:
        await asyncio.sleep(_FIRST_SECONDS)
    from trainyard.kinds.kind_registry import KINDS
    from trainyard.payloads import shipping
    from trainyard.schema import kubernetes_schemas

    await _import_each(*_OF_CLUSTER, *sorted(kind.package for kind in KINDS.values()))
    for name in _modules_of(PROGRAMS):
        shipping.source(name.removeprefix(f"{PROGRAMS}."))
    for kind in KINDS.values():
        _ = kind.crd, kind.legacy
    kubernetes_schemas.definitions("served")  # with all others
    collect_garbage_again()
    _log.info("read: %s", PROGRAMS)


async def import_for_report() -> None:
    """Import what the end of a run needs."""
    await asyncio.sleep(_FIRST_SECONDS)
    await _import_each(*OF_REPORT)


async def _import_each(*names: str) -> None:
    """Import these modules, and all that are in these packages, in half of the time; the other
    half is for requests."""
    for name in names:
        for module in (name, *_modules_of(name)):
            if module not in sys.modules:
                began_at = time.monotonic()
                import_module(module)
                await asyncio.sleep(time.monotonic() - began_at)
    _log.info("imported: %s", " ".join(names))


def _modules_of(package: str) -> Iterator[str]:
    """The names of all modules in a package; none in a module."""
    import pkgutil

    path = getattr(import_module(package), "__path__", ())
    return (each.name for each in pkgutil.walk_packages(path, f"{package}.") if not each.ispkg)
