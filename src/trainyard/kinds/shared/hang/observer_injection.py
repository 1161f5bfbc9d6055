"""How the ranks of a job are observed, and what follows when they hang (decision 222).

The observer's programs come by the Secret by which a pod finds the channel: without one, nobody
could hear of them. The node agent of an embedded cluster has them itself (decision 360). A Python
finds them by PYTHONPATH, before everything that the user has there. An image's own cannot be seen
from outside, so whoever can see it puts ours before it (decision 223): that node agent, and the
programs that start a launcher.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.kinds.shared import child_names
from trainyard.kinds.shared.hang.hang_spec import Hang
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.pods import pod_assembly, pod_template_rules, report_channel_env
from trainyard.kinds.shared.pods.pod_contract import (
    CHANNEL_PATH,
    OBSERVE,
    OBSERVER_PATH,
    PYTHONPATH,
    with_observer_first,
)
from trainyard.kinds.shared.workload import HangAction, HangPolicy, Manifest
from trainyard.payloads.shipping import HOOK, OBSERVER_ARCHIVE

VOLUME = "trainyard-observer"
EVENTS = "TRAINYARD_EVENTS"
"""Folders in which the training may write files for TensorBoard, as in a PATH."""
_READABLE = 0o444


def hang_policy_of(
    spec: Any,
    identity: OwnerIdentity,
    settings: Settings,
    training: Iterable[Mapping[str, Any]],
    *,
    launched: bool,
) -> HangPolicy | None:
    """What the lifecycle is to know; None where nobody observes. `training` are the containers
    that train; `launched`: see `HangPolicy`."""
    chains = launched or settings.brings_observer
    run_policy: Any = getattr(spec, "run_policy", None)
    if getattr(run_policy, "observe", False) is False:
        return None
    is_asked = bool(run_policy.observe) or "hang" in run_policy.model_fields_set
    if not (is_asked or chains or any(_given(each) is not None for each in training)):
        return None
    hang: Hang = run_policy.hang

    def record(name: str, data: Mapping[str, str]) -> Manifest:
        metadata = identity.metadata(name)
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}

    action = HangAction(hang.action)
    return HangPolicy(
        hang.after_seconds, action, record, is_asked=is_asked, chains=chains, launched=launched
    )


def answers_requests(template: Any) -> bool:
    """Whether the pods of a template say that they answer somebody's requests."""
    told = ("ports", "readinessProbe", "livenessProbe")
    return any(
        each.get(field) for each in pod_template_rules.containers(template) for field in told
    )


def with_observer(
    pod: Manifest,
    container: str,
    identity: OwnerIdentity,
    settings: Settings,
    attempt: int,
    policy: HangPolicy | None,
) -> Manifest:
    """The pod with the channel, and the observer, in one container; without the observer where its
    PYTHONPATH comes from elsewhere."""
    pod = report_channel_env.with_channel(pod, container, identity, settings)
    if not settings.channel_address or policy is None:
        return pod
    training = pod_template_rules.container_of(pod, container)
    env = list(training.get("env") or ()) if policy.chains else _with_path(training, policy)
    if env is None or pod_assembly.is_mounted(pod, container, OBSERVER_PATH):
        return pod
    value = f"attempt={attempt},after={policy.after_seconds},files={CHANNEL_PATH},url="
    told = {
        "name": OBSERVE,
        "value": value + report_channel_env.report_url(pod, identity, settings),
    }
    pod_assembly.change_container(pod, container, env=[told, *env])
    if settings.brings_observer:
        return pod
    mount = {"name": VOLUME, "mountPath": OBSERVER_PATH, "readOnly": True}
    pod_assembly.add_mount(pod, container, mount)
    items = [{"key": name, "path": name} for name in (HOOK, OBSERVER_ARCHIVE)]
    source = {
        "secretName": child_names.channel_secret_name(identity.base),
        "defaultMode": _READABLE,
        "optional": True,
        "items": items,
    }
    volumes = pod["spec"].get("volumes") or ()
    pod["spec"]["volumes"] = [*volumes, {"name": VOLUME, "secret": source}]
    return pod


def _given(container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    variables = container.get("env") or ()
    return next((each for each in variables if each.get("name") == PYTHONPATH), None)


def _with_path(container: Mapping[str, Any], policy: HangPolicy) -> list[Any] | None:
    """The variables of a container that nobody of ours starts; None where its PYTHONPATH is not
    to be known, and nobody has asked to be observed at its price."""
    given, variables = _given(container), list(container.get("env") or ())
    if given is None:
        ours = {"name": PYTHONPATH, "value": OBSERVER_PATH}
        return [ours, *variables] if policy.is_asked else None
    if "valueFrom" in given:
        return None
    ours = {"name": PYTHONPATH, "value": with_observer_first(given.get("value") or "")}
    # What it refers to stays before it.
    return [ours if each is given else each for each in variables]
