"""ServiceAccounts: names only, since pods have no right on the API."""

from __future__ import annotations

from trainyard.embedded.resources.printer_columns import AGE, NAME, Column
from trainyard.embedded.resources.resource import META, Served
from trainyard.kube.resources import Resource

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")

SERVED = Served(
    SERVICE_ACCOUNTS,
    order=100,
    definition="ServiceAccount",
    returns_deleted=True,
    short_names=("sa",),
    printer_columns=(
        NAME,
        Column("Secrets", lambda obj: len(obj.get("secrets") or ()), type="integer"),
        AGE,
    ),
    messages={
        "ServiceAccount": (
            META + "2 secrets ObjectReference[], 3 imagePullSecrets LocalObjectReference[], "
            "4 automountServiceAccountToken bool?"
        ),
        "ObjectReference": "1 kind str, 2 namespace str, 3 name str, 4 uid str, 5 apiVersion str",
        "LocalObjectReference": "1 name str",
    },
)
