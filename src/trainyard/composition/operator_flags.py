"""The operator's settings as flags of a command. Imports no Kubernetes client."""

from __future__ import annotations

from typing import NamedTuple

from trainyard.operator.config.setting_types import PREFIX, BooleanSetting, ListSetting
from trainyard.operator.config.settings_table import SETTINGS

CONFIG_VARIABLE = f"{PREFIX}CONFIG"
"""The environment variable that names the file of settings."""


class Flag(NamedTuple):
    """One setting as a flag. `default` is empty where it depends on other settings."""

    setting: str
    flag: str
    help: str
    default: str
    metavar: str
    is_switch: bool
    is_repeatable: bool


def flags() -> list[Flag]:
    """Return a flag for every setting, in the order of the reference page."""
    return [
        Flag(
            setting=setting.name,
            flag=setting.flag,
            help=setting.help,
            default=setting.default_description,
            metavar=setting.values.metavar,
            is_switch=isinstance(setting.values, BooleanSetting),
            is_repeatable=isinstance(setting.values, ListSetting),
        )
        for setting in SETTINGS.values()
    ]
