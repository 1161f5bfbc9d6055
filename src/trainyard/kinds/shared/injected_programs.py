"""The programs of ours that a job's pods get, all in the Secret of its report channel."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.pods.report_channel_env import channel_dependents
from trainyard.kinds.shared.workload import Dependent
from trainyard.payloads.shipping import HOOK, OBSERVER_ARCHIVE, observer_archive, observer_hook
from trainyard.payloads.shipping import programs as texts_of


def program_dependents(
    identity: OwnerIdentity, settings: Settings, files: Mapping[str, str], *, is_observed: bool
) -> tuple[Dependent, ...]:
    """The Secret of the report channel with programs (see `shipping.programs`); none without a
    channel. Where the node brings the observer, the Secret is without it (decision 360)."""
    texts = texts_of(files)
    if not is_observed or settings.brings_observer:
        return channel_dependents(identity, settings, texts, {})
    texts = {HOOK: observer_hook(), **texts}
    return channel_dependents(identity, settings, texts, {OBSERVER_ARCHIVE: observer_archive()})
