"""The manifests by which a cluster runs the operator, as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trainyard.operator.config.settings_loader import EffectiveSettings
from trainyard.operator.config.settings_loader import InvalidSettings as InvalidSettings
from trainyard.operator.install.install_manifests import Install, dump, manifests


def operator_manifests(
    image: str,
    *,
    namespace: str,
    replicas: int,
    config: Path | None,
    server: tuple[int, int] | None,
) -> str:
    """Return all objects as YAML, for Kubernetes of version `server`; None: a current one.

    `config` is a file of settings that the operator gets. Raises InvalidSettings.
    """
    effective = EffectiveSettings({}, {}, config)
    install = Install(
        image=image,
        namespace=namespace,
        replicas=replicas,
        operator=replace(effective.settings.operator, has_channel=effective["channel"]),
        settings=effective.given,
    )
    return dump(manifests(install, server))
