"""Endpoints and EndpointSlices: what stands behind Services, as far as it is written down."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.embedded.resources.printer_columns import AGE, NAME, Column, at
from trainyard.embedded.resources.resource import Object, Present, Served
from trainyard.kube.resources import ENDPOINT_SLICES, ENDPOINTS
from trainyard.schema.problems import Problem, error
from trainyard.schema.rules.endpoint_rules import endpoint_slice, endpoints

_MAX_SHOWN = 3


class _Endpoints(Served):
    def rules(self, obj: Object, old: Object | None) -> Iterable[Problem]:
        return endpoints(obj)

    def unusable(self, obj: Object) -> Iterable[Problem]:
        return endpoints(obj)

    def prepare_create(self, obj: Object, present: Present) -> None:
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                port["protocol"] = port.get("protocol") or "TCP"

    def prepare_update(self, new: Object, old: Object, present: Present) -> None:
        self.prepare_create(new, present)


class _EndpointSlices(Served):
    def rules(self, obj: Object, old: Object | None) -> Iterable[Problem]:
        yield from endpoint_slice(obj)
        if old is not None and obj["addressType"] != old["addressType"]:
            yield error(("addressType",), "field is immutable")

    def unusable(self, obj: Object) -> Iterable[Problem]:
        return endpoint_slice(obj)

    def prepare_create(self, obj: Object, present: Present) -> None:
        for port in obj.get("ports") or ():
            port["name"] = port.get("name") or ""
            port["protocol"] = port.get("protocol") or "TCP"

    def prepare_update(self, new: Object, old: Object, present: Present) -> None:
        self.prepare_create(new, present)


def _shown(texts: list[str], *, none: str = "<none>") -> str:
    """As kubectl: the first few."""
    more = len(texts) - _MAX_SHOWN
    return (",".join(texts[:_MAX_SHOWN]) + (f" + {more} more..." if more > 0 else "")) or none


def _addresses(obj: Object) -> str:
    found = []
    for subset in obj.get("subsets") or ():
        addresses = [address["ip"] for address in subset.get("addresses") or ()]
        ports = [f":{port['port']}" for port in subset.get("ports") or ()]
        found += [f"{ip}{port}" for port in ports or [""] for ip in addresses]
    return _shown(found)


def _slice_ports(obj: Object) -> str:
    ports = obj.get("ports") or ()
    return _shown([str(port.get("port", "*")) for port in ports], none="<unset>")


def _slice_addresses(obj: Object) -> str:
    found = [ip for each in obj.get("endpoints") or () for ip in each["addresses"]]
    return _shown(found, none="<unset>")


SERVED = (
    _Endpoints(
        ENDPOINTS,
        order=50,
        definition="Endpoints",
        short_names=("ep",),
        printer_columns=(NAME, Column("Endpoints", _addresses), AGE),
    ),
    _EndpointSlices(
        ENDPOINT_SLICES,
        order=55,
        definition="EndpointSlice",
        printer_columns=(
            NAME,
            Column("AddressType", at("addressType")),
            Column("Ports", _slice_ports),
            Column("Endpoints", _slice_addresses),
            AGE,
        ),
    ),
)
