"""Random damage to manifests, reproducible from a seed."""

from __future__ import annotations

import copy
import random
from typing import Any

import yaml
from tests.unit.kinds import manifests as m
from tests.unit.kinds.test_accepted import ACCEPTED

JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**31,
    -(2**63),
    1.5,
    "",
    "x",
    "4",
    "true",
    "$(rank)",
    "$(service.x[9].host)",
    "a" * 300,
    "\n\t\x85\u2028é",
    "..",
    [],
    [None],
    [[]],
    [1, "a", {}],
    {},
    {"a": None},
    {"type": 1},
    {"": {}},
    [{"type": "worker"}, {"type": "worker"}],
)
KEYS = (
    "enable",
    "enabled",
    "type",
    "replicas",
    "template",
    "spec",
    "Queue",
    "queue",
    "worker",
    "launcher",
    "replicaSpecs",
    "kind",
    "items",
    "metadata",
    "name",
    "unknown field",
    "",
)
TEXT_JUNK = (
    "\t",
    "- ",
    ": ",
    "{",
    "]",
    "&a ",
    "*a",
    "!!str ",
    "---\n",
    "'",
    '"',
    "|\n",
    "\x00",
    "%",
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with each of its keys."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        for key, child in value.items():
            found += [(value, key), *places(child)]
    elif isinstance(value, list):
        for index, child in enumerate(value):
            found += [(value, index), *places(child)]
    return found


def mutate(rng: random.Random, obj: dict[str, Any]) -> dict[str, Any]:
    """A copy with one to four places replaced, removed, added or swapped."""
    out = copy.deepcopy(obj)
    for _ in range(rng.randint(1, 4)):
        found = places(out)
        if not found:
            break
        where, key = rng.choice(found)
        match rng.randrange(5):
            case 0:
                where[key] = copy.deepcopy(rng.choice(JUNK))
            case 1:
                del where[key]
            case 2 if isinstance(where, dict):
                where[rng.choice(KEYS)] = copy.deepcopy(rng.choice(JUNK))
            case 3 if isinstance(where, dict):
                where[rng.choice(KEYS)] = where.pop(key)
            case _:
                other, place = rng.choice(found)
                if place in other if isinstance(other, dict) else place < len(other):
                    where[key] = copy.deepcopy(other[place])
    return out


def damaged_text(rng: random.Random, obj: dict[str, Any]) -> str:
    """The YAML of a mutated manifest, in half of the cases damaged itself."""
    flow = rng.random() < 0.3
    text = yaml.safe_dump(mutate(rng, obj), default_flow_style=flow, allow_unicode=True)
    for _ in range(rng.choice((0, 0, 1, 2, 5))):
        at = rng.randrange(len(text) + 1)
        if rng.random() < 0.5:
            text = text[:at] + rng.choice(TEXT_JUNK) + text[at:]
        else:
            text = text[:at] + text[at + rng.randint(1, 8) :]
    return text


def seeds() -> list[dict[str, Any]]:
    """The manifests to damage."""
    return [*ACCEPTED.values(), m.colossalai_old()]
