"""Leases, by which controllers elect a leader."""

from __future__ import annotations

from trainyard.kube.resources import LEASES
from trainyard.local.resources.columns import AGE, NAME, Column, at
from trainyard.local.resources.resource import Served

SERVED = Served(
    LEASES,
    order=120,
    definition="Lease",
    printed=(NAME, Column("Holder", at("spec.holderIdentity", "")), AGE),
)
