"""Old spellings of GenericJob."""

from __future__ import annotations

from trainyard.kinds.shared.legacy import Legacy

LEGACY = Legacy()
