"""ConfigMaps."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.embedded.resources.printer_columns import AGE, NAME, Column
from trainyard.embedded.resources.resource import META, Object, Served
from trainyard.kube.resources import CONFIG_MAPS
from trainyard.schema.problems import Problem
from trainyard.schema.rules import config_rules

_FIELDS = ("data", "binaryData")


def _count(obj: Object) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


class _ConfigMaps(Served):
    def is_rarely_read(self, obj: Object) -> bool:
        return True

    def rules(self, obj: Object, old: Object | None) -> Iterable[Problem]:
        yield from config_rules.config_map(obj)
        yield from config_rules.frozen(obj, old or {}, _FIELDS)

    def unusable(self, obj: Object) -> Iterable[Problem]:
        return config_rules.keys(obj, *_FIELDS)


SERVED = _ConfigMaps(
    CONFIG_MAPS,
    order=70,
    short_names=("cm",),
    printer_columns=(NAME, Column("Data", _count, type="integer"), AGE),
    messages={"ConfigMap": META + "2 data str{}, 3 binaryData bytes{}, 4 immutable bool?"},
    definition="ConfigMap",
)
