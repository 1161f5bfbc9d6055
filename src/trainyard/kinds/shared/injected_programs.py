"""The programs of ours that a job's pods get, all in the Secret of its report channel.

A feature that brings programs has one row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainyard.kinds.shared.in_place import in_place_injection
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.node_check import node_check_injection
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.pods.report_channel_env import channel_dependents
from trainyard.kinds.shared.workload import Dependent
from trainyard.payloads.shipping import HOOK, OBSERVER_ARCHIVE, observer_archive, observer_hook
from trainyard.payloads.shipping import programs as texts_of

_FEATURES: tuple[Callable[[object], Mapping[str, str]], ...] = (
    node_check_injection.programs_for,
    in_place_injection.programs_for,
)
"""Spec of a job → file names in the pod, and modules of `payloads`."""


def program_dependents(
    identity: OwnerIdentity, settings: Settings, spec: object, *, is_observed: bool
) -> tuple[Dependent, ...]:
    """The Secret of the report channel with the programs that the job asks for; none without a
    channel. Where the node brings the observer, the Secret is without it (decision 360)."""
    files: dict[str, str] = {}
    for programs_for in _FEATURES:
        files |= programs_for(spec)
    texts = texts_of(files)
    if not is_observed or settings.brings_observer:
        return channel_dependents(identity, settings, texts, {})
    texts = {HOOK: observer_hook(), **texts}
    return channel_dependents(identity, settings, texts, {OBSERVER_ARCHIVE: observer_archive()})
