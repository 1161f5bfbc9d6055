"""The commands that install definitions and operator, as error messages quote them."""

from __future__ import annotations

_CURRENT = (1, 30)
"""Older servers refuse today's definitions or policies, and need the option with their version."""
_APPLY = "kubectl apply --server-side -f -"


def command_for_crds(version: tuple[int, int]) -> str:
    """The command that installs the definitions on a server of this version."""
    return f"trainyard crds{_option(version)} | {_APPLY}"


def command_for_everything(version: tuple[int, int]) -> str:
    """The command that installs definitions and operator on a server of this version."""
    return f"trainyard manifests --image IMAGE{_option(version)} | {_APPLY}"


def _option(version: tuple[int, int]) -> str:
    return f" --kubernetes-version {version[0]}.{version[1]}" if version < _CURRENT else ""
