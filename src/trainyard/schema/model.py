"""The base of every model: frozen, strict, camelCase outside and snake_case inside.

Strict means that ``"3"`` is no integer and ``1`` no boolean, as for a Kubernetes API server.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from trainyard.schema import times

T = TypeVar("T")

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Model(BaseModel):
    """An object of the API. Unknown fields are errors; values are never coerced."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
    )

    @classmethod
    def empty(cls) -> Self:
        """An object with all defaults.

        It is made once for all, as it is frozen: pydantic takes long to work defaults out. No
        validator is built for it.
        """
        found = _EMPTY.get(cls)
        if found is None:
            found = _EMPTY[cls] = cls.model_construct()
        return cast(Self, found)

    def dump(self) -> dict[str, Any]:
        """The object as a plain JSON-able dict in API spelling, defaults and nulls left out."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude_unset=True, mode="json")

    def dump_full(self) -> dict[str, Any]:
        """As ``dump``, with the static defaults written out."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


_EMPTY: dict[type[Model], Model] = {}


class OpenModel(Model):
    """An object whose writer may be newer than we are: unknown fields are kept."""

    model_config = ConfigDict(extra="allow")


Items = Annotated[tuple[T, ...], Strict(False)]
"""A list of the API, a tuple in Python."""


def _without_nulls(value: Any) -> Any:
    """``value`` without keys whose value is null; the same object if there are none."""
    if isinstance(value, dict):
        kept = {k: _without_nulls(v) for k, v in value.items() if v is not None}
        is_same = len(kept) == len(value) and all(kept[k] is v for k, v in value.items())
        return value if is_same else kept
    if isinstance(value, list):
        items = [_without_nulls(item) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    return value


Template = Annotated[
    dict[str, Any],
    AfterValidator(_without_nulls),
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
"""A core/v1 PodTemplateSpec as a plain dict; `kinds.schema_validation` checks it.

To Kubernetes a null is an absent field, and so it is left out.
"""

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TrainingTemplate = Annotated[
    dict[str, Any],
    AfterValidator(_without_nulls),
    WithJsonSchema(
        _OPEN
        | {
            "properties": {
                "spec": _OPEN
                | {
                    "description": "The pod's, a core/v1 PodSpec.",
                    "properties": {
                        "containers": {
                            "description": "At least one, core/v1 Containers.",
                            "type": "array",
                            "items": _OPEN,
                            "minItems": 1,
                        }
                    },
                    "required": ["containers"],
                }
            },
            "required": ["spec"],
        }
    ),
]
"""A template that needs a container, which is all that the definitions say of it."""

Observed = Annotated[Any, WithJsonSchema(_OPEN)]
"""A `status`, which a server drops from what users write, and keeps to its schema in what the
controller does; so its model stands apart, and nobody who reads an object imports it."""

Count = Annotated[int, Field(ge=0, le=INT32_MAX)]


def _read_time(value: object) -> object:
    """An RFC 3339 text as an aware datetime; anything else as it is."""
    return times.parse(value) if isinstance(value, str) and value else value


Time = Annotated[
    datetime,
    BeforeValidator(_read_time),
    PlainSerializer(times.render, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A point in time, RFC 3339 outside."""
