"""The settings in force: read from flags, environment, file and defaults, in this order, and
judged as a whole before anything starts (decision 178).
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
"""What must be more, or not less, than so many times something else."""


class InvalidSettings(TrainyardError):
    """Settings that cannot be used; `problems` holds every reason."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A setting's value and where it came from."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class PodEnvironment:
    """What defaults are taken from."""

    namespace: str | None = None
    """Of the pod that this process runs in."""
    resolver: str = ""
    """The text of its resolv.conf."""


@dataclass
class EffectiveSettings:
    """Every setting's value by its name. Raises InvalidSettings for what cannot be used."""

    flags: Mapping[str, str]
    """By setting; what was given only."""
    environment: Mapping[str, str]
    file: Path | str | None = None
    """Its path, or what it says."""
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
        self._problems += self._contradictions()
        if self._problems:
            raise InvalidSettings(self._problems)
        self._derive()

    def __getitem__(self, name: str) -> Any:
        return self._given[name].value

    @property
    def settings(self) -> ServiceSettings:
        """For the service."""
        made = ServiceSettings()
        for name, setting in SETTINGS.items():
            if setting.place:
                made = _with(made, setting.place.split("."), self[name])
        if made.record is not None:
            made = replace(made, record=Path(made.record))
        if not (self["channel"] and self["channelAddress"]):
            lifecycle = replace(made.operator.lifecycle, channel_address="")
            operator = replace(made.operator, has_channel=False, lifecycle=lifecycle)
            made = replace(made, operator=operator)
        return made if self["leaderElect"] else replace(made, lease=None)

    @property
    def given(self) -> dict[str, Any]:
        """What is not a default, as a file has it."""
        return {
            name: SETTINGS[name].values.to_yaml(given.value)
            for name, given in self._given.items()
            if not given.source.startswith(DEFAULT)
        }

    def text(self) -> str:
        """As a file that says the same, with where each value came from."""
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
        for name, value in _mapping(self.file or "", source).items():
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
                f"setting {setting.name}, from {source}: {_shown(value)} is not "
                f"{setting.values.what}{known}"
            )
            return None

    def _unknown(self, source: str, name: str, known: list[str]) -> None:
        meant = suggest(name, known)
        hint = f"; did you mean {meant}?" if meant else "; --print-config lists all"
        self._problems.append(f"{source}: there is no setting {name}{hint}")

    def _contradictions(self) -> Iterator[str]:
        if self["namespaces"] and self["namespaceSelector"]:
            first, second = self._told("namespaces"), self._told("namespaceSelector")
            yield f"{first} and {second} exclude each other: unset one"
        if self["sshPort"] == self["masterPort"]:
            first, second = self._told("sshPort"), self._told("masterPort")
            yield f"{first} and {second} are one port of the same pod: change one"
        if self["metricsSecure"] and 0 != self["port"] == self["metricsPort"]:
            yield f"{self._told('port')} and {self._told('metricsPort')} are one port: change one"
        for more, less, factor, is_strict, why in _ORDERED:
            least = factor * self[less]
            if self[more] < least or (is_strict and self[more] == least):
                times = "" if factor == 1 else f"{factor:g} times "
                than = "more than" if is_strict else "at least"
                yield f"{self._told(more)} must be {than} {times}{self._told(less)}{why}: raise it"

    def _told(self, name: str) -> str:
        plain = SETTINGS[name].values.to_yaml(self[name])
        return f"setting {name} ({plain}, from {self._given[name].source})"

    def _derive(self) -> None:
        """Defaults that depend on other settings, and on where the process runs."""
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
        """Operators that look after different jobs must not share a Lease, wherever it is kept."""
        said = {name: self[name] for name in _SCOPE if self[name]}
        if not said:
            return ""
        if list(said) == ["namespaces"] and len(self["namespaces"]) == 1:
            return f"-{self['namespaces'][0]}"
        # Of what is said only, so that a setting more in a later version changes no name.
        texts = (
            f"{name}={','.join(sorted(value)) if isinstance(value, tuple) else value}"
            for name, value in said.items()
        )
        return f"-{fnv1a64(chr(0).join(texts).encode()) >> 32:08x}"


def _why(error: Exception) -> str:
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        return f":{error.problem_mark.line + 1}: {error.problem}"
    return f" is not YAML: {error}"


def _shown(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _mapping(file: Path | str, source: str) -> Mapping[Any, Any]:
    try:
        text = file.read_text(encoding="utf-8") if isinstance(file, Path) else file
        loaded = YAML(typ="safe", pure=True).load(text)
    except OSError as error:
        raise InvalidSettings([f"cannot read {file}: {error.strerror}"]) from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise InvalidSettings([f"{source}{_why(error)}"]) from error
    if loaded is None:
        return {}
    if not isinstance(loaded, Mapping):
        raise InvalidSettings([f"{source}: it must hold a mapping, such as sshPort: 2222"])
    return loaded


def _with(whole: Any, path: list[str], value: Any) -> Any:
    """A copy of nested dataclasses with one attribute changed."""
    first, *rest = path
    return replace(whole, **{first: _with(getattr(whole, first), rest, value) if rest else value})
