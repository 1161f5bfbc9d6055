"""The commands that give a cluster what it lacks, as remedies name them."""

from __future__ import annotations

_CURRENT = (1, 30)
"""Servers before this one refuse definitions or policies as they are today."""
_APPLY = "kubectl apply --server-side -f -"


def command_for_crds(version: tuple[int, int]) -> str:
    """For a server of this version."""
    return f"trainyard crds{_option(version)} | {_APPLY}"


def command_for_everything(version: tuple[int, int]) -> str:
    """The same, with the operator."""
    return f"trainyard manifests --image IMAGE{_option(version)} | {_APPLY}"


def _option(version: tuple[int, int]) -> str:
    return f" --kubernetes-version {version[0]}.{version[1]}" if version < _CURRENT else ""
