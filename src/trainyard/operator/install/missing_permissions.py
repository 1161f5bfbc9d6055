"""Finds out which permissions the operator lacks, by SelfSubjectRulesReviews.

Otherwise a missing permission would show only in the first job that needs it. Standbys check as
well: one that could not work is no standby. Where the server cannot tell, nothing is reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainyard.kube.client import Client
from trainyard.kube.errors import KubeError
from trainyard.kube.resources import Resource

log = logging.getLogger(__name__)

REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False
)
INTERVAL_SECONDS, RECHECK_SECONDS = 60.0, 5.0
"""Sooner while some are missing, since somebody may be about to grant them."""
Rule = Mapping[str, Any]
"""A rule of a Role: `apiGroups`, `resources`, `verbs`; in an answer also `resourceNames`."""


class PermissionMonitor:
    """Checks periodically; `missing` has one text per resource, as of the last check."""

    def __init__(self, client: Client, wanted: Mapping[str, Sequence[Rule]]) -> None:
        """`wanted`: the rules that must hold, by namespace, whatever binding grants them."""
        self._client, self._wanted = client, wanted
        self._changed = asyncio.Event()
        self.missing: tuple[str, ...] = ()

    def require(self, wanted: Mapping[str, Sequence[Rule]]) -> None:
        """Check these from now on; the gang scheduler, for one, is known only after detection."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            self._changed.clear()
            try:
                answers = [await self._ask(*each) for each in self._wanted.items()]
                missing = tuple(dict.fromkeys(text for answer in answers for text in answer))
            except KubeError as error:  # not served, or no answer just now: nothing is known
                log.debug("%s", error)
                missing = ()
            for text in sorted(set(missing) - set(self.missing)):
                log.warning("%s", text)
            self.missing = missing
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECHECK_SECONDS if missing else INTERVAL_SECONDS):
                    await self._changed.wait()

    async def _ask(self, namespace: str, wanted: Sequence[Rule]) -> Iterable[str]:
        body = {
            "apiVersion": REVIEWS.api_version,
            "kind": REVIEWS.kind,
            "spec": {"namespace": namespace},
        }
        status = (await self._client.create(REVIEWS, body)).get("status") or {}
        if status.get(
            "incomplete"
        ):  # another authorizer than RBAC decides, and cannot list its rules
            return ()
        return missing_permissions_of(wanted, status.get("resourceRules") or (), namespace)


def missing_permissions_of(
    wanted: Iterable[Rule], given: Sequence[Rule], namespace: str
) -> Iterable[str]:
    """A text such as `no right to create, delete pods in namespace x` for each resource."""
    for rule in wanted:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                verbs = [v for v in rule["verbs"] if not _is_given(group, resource, v, given)]
                if verbs:
                    name = f"{resource}.{group}" if group else resource
                    yield f"no right to {', '.join(verbs)} {name} in namespace {namespace}"


def _is_given(group: str, resource: str, verb: str, given: Sequence[Rule]) -> bool:
    subresource = f"*/{resource.partition('/')[2]}" if "/" in resource else ""
    return any(
        _has(rule.get("apiGroups"), group)
        and _has(rule.get("verbs"), verb)
        and (_has(rule.get("resources"), resource) or subresource in (rule.get("resources") or ()))
        for rule in given
        if not rule.get("resourceNames")
    )


def _has(values: Sequence[str] | None, value: str) -> bool:
    return value in (values or ()) or "*" in (values or ())
