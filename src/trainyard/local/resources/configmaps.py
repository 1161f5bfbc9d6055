"""ConfigMaps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from trainyard.kube.resources import CONFIG_MAPS
from trainyard.local.resources.columns import AGE, NAME, Column
from trainyard.local.resources.resource import META, Object, Served
from trainyard.schema.problems import Problem, error

_LONGEST_KEY = 253
_KEY = re.compile(r"[-._a-zA-Z0-9]+")


def _count(obj: Object) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


class _ConfigMaps(Served):
    def is_at_rest(self, obj: Object) -> bool:
        return True

    def rules(self, obj: Object) -> Iterable[Problem]:
        return key_rules(obj, "data", "binaryData")


def key_rules(obj: Object, *fields: str) -> Iterator[Problem]:
    """The keys of ConfigMaps and Secrets are names of files in the volumes made of them."""
    for field in fields:
        for key in obj.get(field) or ():
            if len(key) > _LONGEST_KEY or not _KEY.fullmatch(key) or key.startswith(".."):
                text = "a key has letters, digits, '-', '_' and '.', and does not begin with '..'"
                yield error((field, key[:_LONGEST_KEY]), text)


SERVED = _ConfigMaps(
    CONFIG_MAPS,
    order=70,
    short_names=("cm",),
    printed=(NAME, Column("Data", _count, type="integer"), AGE),
    messages={"ConfigMap": META + "2 data str{}, 3 binaryData bytes{}, 4 immutable bool?"},
    definition="ConfigMap",
)
