"""Server-side apply."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


class Apply:
    """One apply request."""

    def __init__(
        self, wanted: Object, manager: str, api_version: str, force: bool, subresource: str
    ) -> None:
        self._wanted = wanted

    def created(self) -> Object:
        """The object when there is none yet."""
        return self._wanted

    def merged(self, old: Object) -> Object:
        """The object with what was applied."""
        from trainyard.local.apiserver.patches import merge_patch

        result: Object = merge_patch(old, self._wanted)
        return result
