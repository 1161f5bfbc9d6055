"""Loads the settings from flags, environment, file and defaults, in this order of precedence.

They are validated as a whole, and all problems are reported, before anything starts (decision 178).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import orjson
import yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from trainyard.operator.config.operator_settings import (
    LeaseSettings,
    ServiceSettings,
    cluster_domain_of,
)
from trainyard.operator.config.setting_types import PREFIX, Setting
from trainyard.operator.config.settings_table import GROUPS, SETTINGS
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError
from trainyard.schema.object_names import fnv1a64
from trainyard.schema.problems import suggest

CONFIG_VARIABLE = f"{PREFIX}CONFIG"
DEFAULT = "default"

_LINKS = re.compile(r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)\Z")
"""Variables that Kubernetes gives to pods beside a Service named trainyard-operator.
https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables"""
_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://")
_SCOPE = ("namespaces", "namespaceSelector", "jobSelector", "kinds")
_ORDERED = (
    ("restartDelayMax", "restartDelayInitial", 1, False, ""),
    ("retryDelayMax", "retryDelayInitial", 1, False, ""),
    ("leaseDuration", "leaseRenewDeadline", 1, True, ", or two could lead"),
    # https://pkg.go.dev/k8s.io/client-go/tools/leaderelection#JitterFactor
    ("leaseRenewDeadline", "leaseRetryPeriod", 1.2, True, ", or no second attempt fits"),
)
"""Pairs of durations: the first must be at least, or more than, a multiple of the second."""


class InvalidSettings(TrainyardError):
    """The settings are invalid; `problems` has one text for each reason."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A setting's value, and where it came from: flag, variable, file or default."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class PodEnvironment:
    """What some defaults are taken from."""

    namespace: str | None = None
    """The namespace of the pod that this process runs in."""
    resolver: str = ""
    """The content of its resolv.conf."""


@dataclass
class EffectiveSettings:
    """The values of all settings, by name. Raises InvalidSettings."""

    flags: Mapping[str, str]
    """Flags that were given, by setting."""
    environment: Mapping[str, str]
    file: Path | str | None = None
    """The path of the settings file, or its content."""
    around: PodEnvironment = field(default_factory=PodEnvironment)

    def __post_init__(self) -> None:
        self._problems: list[str] = []
        from_file = self._from_file() if self.file is not None else {}
        from_environment = self._from_environment()
        self._given: dict[str, SourcedValue] = {
            name: self._from_flag(setting)
            or from_environment.get(name)
            or from_file.get(name)
            or SourcedValue(setting.default, DEFAULT)
            for name, setting in SETTINGS.items()
        }
        self._problems += self._find_contradictions()
        if self._problems:
            raise InvalidSettings(self._problems)
        self._resolve_defaults()

    def __getitem__(self, name: str) -> Any:
        return self._given[name].value

    @property
    def settings(self) -> ServiceSettings:
        """The settings as the operator process uses them."""
        made = ServiceSettings()
        for name, setting in SETTINGS.items():
            if setting.place:
                made = _replace_nested(made, setting.place.split("."), self[name])
        if made.record is not None:
            made = replace(made, record=Path(made.record))
        if not (self["channel"] and self["channelAddress"]):
            lifecycle = replace(made.operator.lifecycle, channel_address="")
            operator = replace(made.operator, has_channel=False, lifecycle=lifecycle)
            made = replace(made, operator=operator)
        return made if self["leaderElect"] else replace(made, lease=None)

    @property
    def given(self) -> dict[str, Any]:
        """The values that are not defaults, as a file has them."""
        return {
            name: SETTINGS[name].values.to_yaml(given.value)
            for name, given in self._given.items()
            if not given.source.startswith(DEFAULT)
        }

    def text(self) -> str:
        """A settings file with these values, and a comment at each where it came from."""
        lines = ["# The settings in force, and where each came from; --config takes this file."]
        for heading, settings in GROUPS.items():
            lines.append(f"\n# {heading}")
            for setting in settings:
                given = self._given[setting.name]
                plain = None if given.value is None else setting.values.to_yaml(given.value)
                line = yaml.safe_dump({setting.name: plain}, width=2**31, allow_unicode=True)
                if isinstance(plain, list | dict):
                    line = f"{setting.name}: " + yaml.safe_dump(
                        plain, width=2**31, default_flow_style=True, allow_unicode=True
                    )
                lines.append(f"{line.rstrip()}  # {given.source}")
        return "\n".join(lines) + "\n"

    def _from_flag(self, setting: Setting) -> SourcedValue | None:
        text = self.flags.get(setting.name, "")
        return self._read(setting, setting.values.parse_text, text, f"flag {setting.flag}")

    def _from_environment(self) -> dict[str, SourcedValue]:
        found: dict[str, SourcedValue] = {}
        by_variable = {setting.variable: setting for setting in SETTINGS.values()}
        for variable, text in self.environment.items():
            if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE or not text:
                continue
            if _LINKS.match(variable.removeprefix(PREFIX)) or _LINK_VALUE.match(text):
                continue
            source = f"environment variable {variable}"
            setting = by_variable.get(variable)
            if setting is None:
                self._unknown(source, variable, list(by_variable))
            elif given := self._read(setting, setting.values.parse_text, text, source):
                found[setting.name] = given
        return found

    def _from_file(self) -> dict[str, SourcedValue]:
        source = f"file {self.file}" if isinstance(self.file, Path) else "its file"
        found: dict[str, SourcedValue] = {}
        for name, value in _load_file(self.file or "", source).items():
            setting = SETTINGS.get(str(name))
            if setting is None:
                self._unknown(source, str(name), list(SETTINGS))
            elif value is not None and (
                given := self._read(setting, setting.values.parse_yaml, value, source)
            ):
                found[setting.name] = given
        return found

    def _read(
        self, setting: Setting, parse: Callable[[Any], Any], value: Any, source: str
    ) -> SourcedValue | None:
        if value in ("", [], {}):
            return None
        try:
            return SourcedValue(parse(value), source)
        except (ValueError, TypeError, OverflowError):
            known = (
                f" (the default is {setting.default_description})"
                if setting.default_description
                else ""
            )
            self._problems.append(
                f"setting {setting.name}, from {source}: {_format(value)} is not "
                f"{setting.values.what}{known}"
            )
            return None

    def _unknown(self, source: str, name: str, known: list[str]) -> None:
        meant = suggest(name, known)
        hint = f"; did you mean {meant}?" if meant else "; --print-config lists all"
        self._problems.append(f"{source}: there is no setting {name}{hint}")

    def _find_contradictions(self) -> Iterator[str]:
        if self["namespaces"] and self["namespaceSelector"]:
            first, second = self._describe("namespaces"), self._describe("namespaceSelector")
            yield f"{first} and {second} exclude each other: unset one"
        if self["sshPort"] == self["masterPort"]:
            first, second = self._describe("sshPort"), self._describe("masterPort")
            yield f"{first} and {second} are one port of the same pod: change one"
        if self["metricsSecure"] and 0 != self["port"] == self["metricsPort"]:
            first, second = self._describe("port"), self._describe("metricsPort")
            yield f"{first} and {second} are one port: change one"
        for more, less, factor, is_strict, why in _ORDERED:
            least = factor * self[less]
            if self[more] < least or (is_strict and self[more] == least):
                times = "" if factor == 1 else f"{factor:g} times "
                than = "more than" if is_strict else "at least"
                first, second = self._describe(more), self._describe(less)
                yield f"{first} must be {than} {times}{second}{why}: raise it"

    def _describe(self, name: str) -> str:
        plain = SETTINGS[name].values.to_yaml(self[name])
        return f"setting {name} ({plain}, from {self._given[name].source})"

    def _resolve_defaults(self) -> None:
        """Fill in defaults that depend on other settings or on the pod."""
        if self._given["clusterDomain"].source == DEFAULT:
            domain = cluster_domain_of(self.around.resolver)
            self._given["clusterDomain"] = SourcedValue(domain, f"{DEFAULT}, from resolv.conf")
        if self._given["leaseNamespace"].source == DEFAULT:
            place, why = self._lease_namespace()
            self._given["leaseNamespace"] = SourcedValue(place, f"{DEFAULT}, {why}")
        if self._given["leaseName"].source == DEFAULT:
            name = LeaseSettings().name + self._scope()
            self._given["leaseName"] = SourcedValue(name, f"{DEFAULT}, from what is looked after")

    def _lease_namespace(self) -> tuple[str, str]:
        namespaces = self["namespaces"]
        if len(namespaces) == 1:
            return namespaces[0], "from namespaces"
        if self.around.namespace:
            return self.around.namespace, "of this pod"
        if namespaces:
            return namespaces[0], "from namespaces"
        return LeaseSettings().namespace, "outside a cluster"

    def _scope(self) -> str:
        """A suffix for the Lease: operators with different scopes must not share one."""
        given = {name: self[name] for name in _SCOPE if self[name]}
        if not given:
            return ""
        if list(given) == ["namespaces"] and len(self["namespaces"]) == 1:
            return f"-{self['namespaces'][0]}"
        # Only what is set: a scope setting that a later version adds must not change the name.
        texts = (
            f"{name}={','.join(sorted(value)) if isinstance(value, tuple) else value}"
            for name, value in given.items()
        )
        return f"-{fnv1a64(chr(0).join(texts).encode()) >> 32:08x}"


def _yaml_problem(error: Exception) -> str:
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        return f":{error.problem_mark.line + 1}: {error.problem}"
    return f" is not YAML: {error}"


def _format(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _load_file(file: Path | str, source: str) -> Mapping[Any, Any]:
    try:
        text = file.read_text(encoding="utf-8") if isinstance(file, Path) else file
        loaded = YAML(typ="safe", pure=True).load(text)
    except OSError as error:
        raise InvalidSettings([f"cannot read {file}: {error.strerror}"]) from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise InvalidSettings([f"{source}{_yaml_problem(error)}"]) from error
    if loaded is None:
        return {}
    if not isinstance(loaded, Mapping):
        raise InvalidSettings([f"{source}: it must hold a mapping, such as sshPort: 2222"])
    return loaded


def _replace_nested(whole: Any, path: list[str], value: Any) -> Any:
    """A copy of nested dataclasses with the attribute at `path` changed."""
    first, *rest = path
    return replace(
        whole, **{first: _replace_nested(getattr(whole, first), rest, value) if rest else value}
    )
