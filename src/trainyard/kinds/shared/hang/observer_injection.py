"""How the observer of ranks comes into pods, and what follows when ranks hang (decision 222).

The observer's programs are in the Secret of the report channel: without one they could report to
nobody. The node agent of an embedded cluster has them itself (decision 360). Python finds them by
PYTHONPATH, where they come before all that the user has there. The PYTHONPATH of an image cannot be
seen from here. So programs that can see it put the observer first (decision 223): that node agent,
and those that start a launcher.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.kinds.shared.child_names import CHANNEL_PATH
from trainyard.kinds.shared.hang.hang_spec import Hang
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.pods import pod_assembly, pod_template_rules, report_channel_env
from trainyard.kinds.shared.workload import HangAction, HangPolicy, Manifest
from trainyard.kube.embedded_contract import OBSERVE, OBSERVER_PATH, prepend_observer
from trainyard.payloads.shipping import HOOK, OBSERVER_ARCHIVE

VOLUME = "trainyard-observer"
EVENTS = "TRAINYARD_EVENTS"
"""Variable with the folders in which the training may write for TensorBoard, `:` between them."""
_PYTHONPATH = "PYTHONPATH"


def hang_policy_of(
    spec: Any,
    identity: OwnerIdentity,
    settings: Settings,
    training: Iterable[Mapping[str, Any]],
    *,
    launched: bool,
) -> HangPolicy | None:
    """The job's policy on hangs; None where its ranks are not observed.

    `training` are the containers that train. `launched`: see `HangPolicy`.
    """
    launch_adds_observer = launched or settings.brings_observer
    run_policy: Any = getattr(spec, "run_policy", None)
    if getattr(run_policy, "observe", False) is False:
        return None
    is_requested = bool(run_policy.observe) or "hang" in run_policy.model_fields_set
    has_path = any(_pythonpath_of(each) is not None for each in training)
    if not (is_requested or launch_adds_observer or has_path):
        return None
    hang: Hang = run_policy.hang

    def record(name: str, data: Mapping[str, str]) -> Manifest:
        metadata = identity.metadata(name)
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}

    action = HangAction(hang.action)
    return HangPolicy(
        hang.after_seconds,
        action,
        record,
        is_requested=is_requested,
        launch_adds_observer=launch_adds_observer,
        launched=launched,
    )


def answers_requests(template: Any) -> bool:
    """Whether a template declares that its pods answer requests: by ports or probes."""
    declarations = ("ports", "readinessProbe", "livenessProbe")
    return any(
        each.get(field)
        for each in pod_template_rules.containers(template)
        for field in declarations
    )


def with_observer(
    pod: Manifest,
    container: str,
    identity: OwnerIdentity,
    settings: Settings,
    attempt: int,
    policy: HangPolicy | None,
) -> Manifest:
    """The pod with the report channel and the observer in one container.

    Without the observer where the container's PYTHONPATH comes from a ConfigMap or Secret, so that
    ours cannot be put before it.
    """
    pod = report_channel_env.with_channel(pod, container, identity, settings)
    if not settings.channel_address or policy is None:
        return pod
    training = pod_template_rules.container_of(pod, container)
    env = (
        list(training.get("env") or ())
        if policy.launch_adds_observer
        else _with_path(training, policy)
    )
    if env is None or pod_assembly.is_mounted(pod, container, OBSERVER_PATH):
        return pod
    message = training.get("terminationMessagePath")
    place = f"message={message}," if message else ""
    value = f"attempt={attempt},after={policy.after_seconds},files={CHANNEL_PATH},{place}url="
    variable = {
        "name": OBSERVE,
        "value": value + report_channel_env.report_url(pod, identity, settings),
    }
    pod_assembly.change_container(pod, container, env=[variable, *env])
    if settings.brings_observer:
        return pod
    files = {name: name for name in (HOOK, OBSERVER_ARCHIVE)}
    volume = (VOLUME, OBSERVER_PATH)
    report_channel_env.mount_channel_files(pod, container, identity, volume, files)
    return pod


def _pythonpath_of(container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    variables = container.get("env") or ()
    return next((each for each in variables if each.get("name") == _PYTHONPATH), None)


def _with_path(container: Mapping[str, Any], policy: HangPolicy) -> list[Any] | None:
    """The variables of a container whose command no program of ours starts, with the observer in
    PYTHONPATH.

    None where ours would hide a PYTHONPATH that cannot be known, unless the user asks for that.
    """
    given, variables = _pythonpath_of(container), list(container.get("env") or ())
    if given is None:
        ours = {"name": _PYTHONPATH, "value": OBSERVER_PATH}
        return [ours, *variables] if policy.is_requested else None
    if "valueFrom" in given:
        return None
    ours = {"name": _PYTHONPATH, "value": prepend_observer(given.get("value") or "")}
    # It stays at its place: `$(NAME)` refers to variables further up only.
    return [ours if each is given else each for each in variables]
