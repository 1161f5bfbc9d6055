"""A setting of the operator, and the types of its value.

A type parses both texts, from flags and environment variables, and YAML values, from files. It says
what is allowed in its own words, because an error must name the setting, where its value came from
and the default; pydantic-settings validates merged values, and knows none of that (decision 178).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from trainyard.schema import duration
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import InvalidDuration

PREFIX = "TRAINYARD_OPERATOR_"
"""Of variables."""

_UNITS = (("h", 3600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = rf"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_NAME}"
_CHOICE = rf"\(\s*({_NAME})?(\s*,\s*({_NAME})?)*\s*\)"
_REQUIREMENT = rf"\s*(!\s*{_KEY}|{_KEY}(\s*(=|==|!=)\s*({_NAME})?|\s+(in|notin)\s*{_CHOICE})?)\s*"
_SELECTOR = re.compile(rf"{_REQUIREMENT}(,{_REQUIREMENT})*\Z")
"""https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api"""


class SettingType(Protocol):
    """The type of a setting's value."""

    @property
    def what(self) -> str:
        """`a whole number from 1 to 10`: completes "… is not"."""

    @property
    def metavar(self) -> str:
        """The placeholder for the flag's value in `--help`."""

    def parse_text(self, text: str) -> Any:
        """Parse the text of a flag or variable; raises ValueError."""

    def parse_yaml(self, given: Any) -> Any:
        """Check a value from a file; raises ValueError or TypeError."""

    def to_yaml(self, value: Any) -> Any:
        """The value as it is written in a file."""

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the value in a file, for the chart."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    `place` is the attribute path in `ServiceSettings`, "" for a setting that affects several
    attributes. Where the default depends on other settings, `default_source` says how.
    """

    name: str
    values: SettingType
    help: str
    place: str = ""
    default: Any = None
    default_source: str = ""
    flag_override: str = ""
    """The flag, where it does not follow from the name."""

    @property
    def flag(self) -> str:
        """The command line flag."""
        return self.flag_override or "--" + _snake(self.name).replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + _snake(self.name).upper()

    @property
    def default_description(self) -> str:
        """The default for help and pages, such as `2222`; "" if there is none."""
        if self.default_source:
            return self.default_source
        to_yaml = self.values.to_yaml(self.default)
        if to_yaml in (None, "", [], {}):
            return ""
        return str(to_yaml).lower() if isinstance(to_yaml, bool) else str(to_yaml)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


@dataclass(frozen=True)
class IntegerSetting:
    """A whole number; both bounds are allowed."""

    least: int
    most: int
    metavar: str = "N"

    @property
    def what(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def parse_text(self, text: str) -> int:
        return self.parse_yaml(int(text))

    def parse_yaml(self, given: Any) -> int:
        # 22.0 too: a chart's values are JSON.
        is_whole = type(given) is int or (isinstance(given, float) and given.is_integer())
        if not is_whole or not self.least <= given <= self.most:
            raise ValueError(given)
        return int(given)

    def to_yaml(self, value: int) -> int:
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class BooleanSetting:
    """true or false."""

    what: str = "true or false"
    metavar: str = ""

    def parse_text(self, text: str) -> bool:
        return self.parse_yaml({"true": True, "false": False}.get(text.lower()))

    def parse_yaml(self, given: Any) -> bool:
        if not isinstance(given, bool):
            raise ValueError(given)
        return given

    def to_yaml(self, value: bool) -> bool:
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class ChoiceSetting:
    """One of several words, which `make` turns into values."""

    choices: tuple[str, ...]
    make: Callable[[str], Any] = str

    @property
    def what(self) -> str:
        return f"one of {', '.join(self.choices)}"

    @property
    def metavar(self) -> str:
        return "|".join(self.choices)

    def parse_text(self, text: str) -> Any:
        if text not in self.choices:
            raise ValueError(text)
        return self.make(text)

    def parse_yaml(self, given: Any) -> Any:
        return self.parse_text(given)

    def to_yaml(self, value: str) -> str:
        return str(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.choices)}


@dataclass(frozen=True)
class DurationSetting:
    """A duration; both bounds are allowed."""

    least: float
    most: float
    metavar: str = "DURATION"

    @property
    def what(self) -> str:
        least, most = render_duration(self.least), render_duration(self.most)
        return f"a duration from {least} to {most}, such as 90s or 1m30s"

    def parse_text(self, text: str) -> float:
        try:
            seconds = duration.parse(text).total_seconds()
        except InvalidDuration:
            seconds = float(text)
        return self._bounded(seconds)

    def parse_yaml(self, given: Any) -> float:
        if isinstance(given, str):
            return self.parse_text(given)
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise ValueError(given)
        return self._bounded(float(given))

    def _bounded(self, seconds: float) -> float:
        if not self.least <= seconds <= self.most:
            raise ValueError(seconds)
        return seconds

    def to_yaml(self, value: float) -> str:
        return render_duration(value)

    def schema(self) -> dict[str, Any]:
        text = r"^([0-9]+(y|w|d|h|m|s|ms))+$|^[0-9]+(\.[0-9]+)?$"
        bounds = {"minimum": self.least, "maximum": self.most}
        return {"anyOf": [{"type": "string", "pattern": text}, {"type": "number", **bounds}]}


@dataclass(frozen=True)
class TextSetting:
    """A text that the predicate `fits` accepts."""

    what: str
    metavar: str
    fits: Callable[[str], bool] = bool

    def parse_text(self, text: str) -> str:
        if not self.fits(text):
            raise ValueError(text)
        return text

    def parse_yaml(self, given: Any) -> str:
        if not isinstance(given, str):
            raise ValueError(given)
        return self.parse_text(given)

    def to_yaml(self, value: str) -> str:
        return str(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True)
class ListSetting:
    """A list of values; in a text, separated by commas."""

    each: SettingType

    @property
    def what(self) -> str:
        return f"{self.each.what}, or several"

    @property
    def metavar(self) -> str:
        return f"{self.each.metavar}[,…]"

    def parse_text(self, text: str) -> tuple[Any, ...]:
        return self._once([self.each.parse_text(part.strip()) for part in text.split(",")])

    def parse_yaml(self, given: Any) -> tuple[Any, ...]:
        if not isinstance(given, list):
            raise ValueError(given)
        return self._once([self.each.parse_yaml(part) for part in given])

    def _once(self, values: list[Any]) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(values))

    def to_yaml(self, value: tuple[Any, ...]) -> list[Any]:
        return [self.each.to_yaml(each) for each in value]

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.each.schema()}


def render_duration(seconds: float) -> str:
    """`1m30s`; as `trainyard.schema.duration` reads it."""
    left, parts = round(seconds * 1000), []
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def is_selector(text: str) -> bool:
    """Whether the text is a label selector as kubectl's `-l` takes it."""
    return _SELECTOR.match(text) is not None
