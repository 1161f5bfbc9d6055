"""The node check: what tests a pod's node before the pod's command starts."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.payloads import in_place

FILES: Mapping[str, str] = {
    "node_check.py": "node_check.node_check_runner",
    "pairs.py": "node_check.node_check_collectives",
    **in_place.FILES,
}
"""File names in the pod, and the modules. It shares code with what restarts in place, and a job may
have both."""
