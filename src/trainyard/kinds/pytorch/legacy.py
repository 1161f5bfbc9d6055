"""Old spellings of PyTorchTrainingJob."""

from __future__ import annotations

from trainyard.kinds.shared.legacy_spellings import ELASTIC, RENAMES, Dropped, Legacy, Rename

TORCHRUN = ("spec", "torchrunConfig")

LEGACY = Legacy(
    renames=(*RENAMES, ELASTIC, Rename(TORCHRUN, "enable", "enabled")),
    dropped=(Dropped((*TORCHRUN, "minNodes"), "elastic.minReplicas"),),
)
