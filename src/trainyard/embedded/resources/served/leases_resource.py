"""Leases, by which controllers elect a leader."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.embedded.resources.printer_columns import AGE, NAME, Column, at
from trainyard.embedded.resources.resource import Object, Served
from trainyard.kube.resources import LEASES
from trainyard.schema.problems import Problem
from trainyard.schema.rules.record_rules import lease


class _Leases(Served):
    def rules(self, obj: Object, old: Object | None) -> Iterable[Problem]:
        return lease(obj)


SERVED = _Leases(
    LEASES,
    order=120,
    needs_version=True,
    created_by_update=True,
    definition="Lease",
    unset={"spec": {}},
    printer_columns=(NAME, Column("Holder", at("spec.holderIdentity", "")), AGE),
)
