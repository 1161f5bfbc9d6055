"""Kubernetes quantities (``500m``, ``16Gi``, ``1e3``): exact arithmetic, canonical text.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from trainyard.schema.errors import InvalidQuantity

_QUANTITY = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,3}))?\Z", re.ASCII
)
_BINARY = {unit + "i": Decimal(1024 ** (n + 1)) for n, unit in enumerate("KMGTPE")}
_DECIMAL = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{unit: Decimal(10) ** (3 * n + 3) for n, unit in enumerate("kMGTPE")},
}


@lru_cache(maxsize=4096, typed=True)
def parse(value: str | int | float) -> Decimal:
    """The amount in base units (cores, bytes, pieces); raises InvalidQuantity."""
    if isinstance(value, bool):
        raise InvalidQuantity(f"{value!r} is not a quantity; write a number such as 2 or 500m")
    text = repr(value) if isinstance(value, float) else str(value).strip(" \t\r\n")
    match = _QUANTITY.match(text)
    if match is None or len(text) > 64:
        raise InvalidQuantity(f"'{str(value)[:64]}' is not a quantity such as 2, 500m, 16Gi or 1e3")
    number, binary, decimal, exponent = match.groups()
    amount = Decimal(number)
    if binary:
        return amount * _BINARY[binary]
    if decimal:
        return amount * _DECIMAL[decimal]
    return amount.scaleb(int(exponent)) if exponent else amount


def parse_int(value: str | int | float) -> int:
    """The amount rounded up to a whole number (bytes, GPUs)."""
    return int(parse(value).to_integral_value(ROUND_CEILING))


def parse_milli(value: str | int | float) -> int:
    """The amount in thousandths, rounded up (CPU)."""
    return int((parse(value) * 1000).to_integral_value(ROUND_CEILING))


def format_cpu(milli: int) -> str:
    """``1500`` → ``1500m``, ``2000`` → ``2``."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def format_bytes(amount: int) -> str:
    """The largest binary unit that divides the amount, e.g. ``16Gi``."""
    for unit, size in reversed(_BINARY.items()):
        if amount and amount % int(size) == 0:
            return f"{amount // int(size)}{unit}"
    return str(amount)
