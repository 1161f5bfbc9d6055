"""ConfigMaps."""

from __future__ import annotations

from trainyard.kube.resources import CONFIG_MAPS
from trainyard.local.resources.columns import AGE, NAME, Column
from trainyard.local.resources.resource import META, Object, Served


def _count(obj: Object) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


SERVED = Served(
    CONFIG_MAPS,
    order=70,
    short_names=("cm",),
    printed=(NAME, Column("Data", _count, type="integer"), AGE),
    messages={"ConfigMap": META + "2 data str{}, 3 binaryData bytes{}, 4 immutable bool?"},
    official=True,
)
