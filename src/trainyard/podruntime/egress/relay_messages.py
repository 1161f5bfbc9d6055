"""What the shim sends to the egress relay. Its fields are a wire format, as in ``protocol``."""

from __future__ import annotations

from typing import NamedTuple


class RelayUpdate(NamedTuple):
    """An update of the egress relay's state. A file that comes along has a ``SetNames``.

    ``ports``: of the machine's loopback, allowed to pods (None: as before). ``gone``: the address
    of a pod that was removed.
    """

    ports: tuple[int, ...] | None = None
    gone: str = ""
