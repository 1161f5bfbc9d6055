"""Old spellings of GenericJob."""

from __future__ import annotations

from trainyard.kinds.shared.legacy_spellings import Legacy

LEGACY = Legacy()
