"""Secrets, whose type is chosen once."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.embedded.api_errors import StatusCause
from trainyard.embedded.resources.printer_columns import AGE, NAME, Column, at
from trainyard.embedded.resources.resource import META, Object, Present, Served
from trainyard.kube.resources import SECRETS
from trainyard.schema.problems import Problem
from trainyard.schema.rules import config_rules

_OPAQUE = "Opaque"


class _Secrets(Served):
    def is_rarely_read(self, obj: Object) -> bool:
        return True

    def rules(self, obj: Object, old: Object | None) -> Iterable[Problem]:
        yield from config_rules.secret(obj)
        new = {**obj}
        _fold_string_data(new)
        yield from config_rules.frozen(new, old or {}, ("data",))

    def unusable(self, obj: Object) -> Iterable[Problem]:
        return config_rules.keys(obj, "data")

    def prepare_create(self, obj: Object, present: Present) -> None:
        obj.setdefault("type", _OPAQUE)
        _fold_string_data(obj)

    def prepare_update(self, new: Object, old: Object, present: Present) -> None:
        before = old.get("type", _OPAQUE)
        new.setdefault("type", _OPAQUE)
        _fold_string_data(new)
        if new["type"] != before:
            raise self.refused(new, StatusCause("type", "field is immutable"))


def _fold_string_data(secret: Object) -> None:
    """`stringData` is write-only: it is stored, encoded, in `data`."""
    plain = secret.pop("stringData", None)
    if plain:
        from base64 import b64encode

        data = secret["data"] = {**(secret.get("data") or {})}
        data.update({key: b64encode(str(value).encode()).decode() for key, value in plain.items()})


SERVED = _Secrets(
    SECRETS,
    order=60,
    printer_columns=(
        NAME,
        Column("Type", at("type", _OPAQUE)),
        Column("Data", lambda obj: len(obj.get("data") or ()), type="integer"),
        AGE,
    ),
    selectable=frozenset({"type"}),
    messages={"Secret": META + "2 data bytes{}, 3 type str, 4 stringData str{}, 5 immutable bool?"},
    definition="Secret",
)
