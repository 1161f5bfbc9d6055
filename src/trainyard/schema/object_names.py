"""What may be a name in Kubernetes, and a hash for names that must not change between versions.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_LABEL = 63
"""The longest RFC 1035 or RFC 1123 label."""
_LONGEST_SUBDOMAIN = 253
_LONGEST_QUALIFIED = _LONGEST_SUBDOMAIN + 1 + MAX_LABEL

_OFFSET_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
_DNS_1123_SUBDOMAIN = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z"
)


def fnv1a64(data: bytes) -> int:
    """The 64-bit Fowler-Noll-Vo hash, variant 1a."""
    value = _OFFSET_BASIS
    for byte in data:
        value = ((value ^ byte) * _PRIME) & _MASK
    return value


def is_dns_label(name: str) -> bool:
    """Whether the name is an RFC 1035 label: lower-case letters, digits, ``-``, a letter first."""
    return len(name) <= MAX_LABEL and _DNS_1035.match(name) is not None


def is_plain_label(name: str) -> bool:
    """Whether the name may name a container, volume or port (RFC 1123 label)."""
    return len(name) <= MAX_LABEL and _DNS_1123.match(name) is not None


def is_dns_subdomain(name: str) -> bool:
    """Whether the name may name a Secret, claim or Queue (RFC 1123 subdomain)."""
    return len(name) <= _LONGEST_SUBDOMAIN and _DNS_1123_SUBDOMAIN.match(name) is not None


def is_qualified_name(name: str) -> bool:
    """Whether the name may be a label's key, a finalizer or the type of a condition."""
    return len(name) <= _LONGEST_QUALIFIED and _is_qualified(name)


@lru_cache(1024)
def _is_qualified(name: str) -> bool:
    prefix, slash, rest = name.rpartition("/")
    return _QUALIFIED.match(rest) is not None and (not slash or is_dns_subdomain(prefix))
