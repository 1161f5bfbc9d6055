"""Restart in place: what keeps a pod alive between two attempts of its command."""

from __future__ import annotations

from collections.abc import Mapping

FILES: Mapping[str, str] = {
    "hold.py": "in_place.in_place_supervisor",
    "processes.py": "processes",
    "starting.py": "in_place.in_place_process",
    "telling.py": "report_client",
}
"""File names in the pod, and the modules."""
