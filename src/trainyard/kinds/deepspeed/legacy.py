"""Old spellings of DeepSpeedJob."""

from __future__ import annotations

from trainyard.kinds.deepspeed.spec import LEGACY_MASTER
from trainyard.kinds.shared.legacy_spellings import (
    ELASTIC,
    RENAMES,
    Legacy,
    Normalised,
    Rename,
    value_at,
)
from trainyard.schema.problems import warning

RUN = ("spec", "config", "run")


def _masters(result: Normalised) -> None:
    """Only debug and resume entries name it, and it is no other type's name there."""
    for section, key in (("debug", "replicaSpecs"), ("pause", "resumeSpecs")):
        entries = value_at(result.obj, ("spec", "runMode", section, key))
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict) and entry.get("type") == LEGACY_MASTER:
                path = ("spec", "runMode", section, key, index, "type")
                message = f"'{LEGACY_MASTER}' is an old spelling; it stands for worker-0"
                result.problems.append(warning(path, message))


LEGACY = Legacy(
    renames=(*RENAMES, ELASTIC, Rename(RUN, "Module", "module"), Rename(RUN, "Exec", "exec")),
    note=_masters,
)
