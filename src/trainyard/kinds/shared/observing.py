"""How the ranks of a job are observed, and what follows when they hang (decision 222).

The observer's programs come by the Secret by which a pod finds the channel: without one, nobody
could hear of them. A Python finds them by PYTHONPATH, before everything that the user has there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.kinds.shared import channel, names, pod_rules, pods
from trainyard.kinds.shared.hang import Hang
from trainyard.kinds.shared.identity import Identity
from trainyard.kinds.shared.settings import Settings
from trainyard.kinds.shared.workload import Dependent, HangAction, HangPolicy, Manifest
from trainyard.payloads import OBSERVER, texts

VOLUME = "trainyard-observer"
PATH = "/t9k/observer"
VARIABLE = "TRAINYARD_OBSERVE"
_PYTHONPATH = "PYTHONPATH"
_READABLE = 0o444


def policy_of(run_policy: Any, identity: Identity) -> HangPolicy | None:
    """What the lifecycle is to know; None where nobody observes."""
    if not getattr(run_policy, "observe", False):
        return None
    hang: Hang = run_policy.hang

    def record(name: str, data: Mapping[str, str]) -> Manifest:
        metadata = identity.metadata(name)
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}

    return HangPolicy(hang.after_seconds, HangAction(hang.action), record)


def dependents(
    identity: Identity, settings: Settings, policy: HangPolicy | None
) -> tuple[Dependent, ...]:
    """The Secret of the channel, with the programs in it where ranks are observed."""
    return channel.dependents(identity, settings, texts(OBSERVER) if policy is not None else {})


def serves(template: Any) -> bool:
    """Whether the pods of a template say that they answer somebody's requests."""
    told = ("ports", "readinessProbe", "livenessProbe")
    return any(each.get(field) for each in pod_rules.containers(template) for field in told)


def equipped(
    pod: Manifest,
    container: str,
    identity: Identity,
    settings: Settings,
    attempt: int,
    policy: HangPolicy | None,
) -> Manifest:
    """The pod with the channel, and the observer, in one container; without the observer where its
    PYTHONPATH comes from elsewhere."""
    pod = channel.equipped(pod, container, identity, settings)
    if not settings.channel_address or policy is None:
        return pod
    training = pod_rules.container_of(pod, container)
    variables = list(training.get("env") or ())
    given = next((each for each in variables if each.get("name") == _PYTHONPATH), None)
    if given is not None and "valueFrom" in given:
        return pod
    mount = {"name": VOLUME, "mountPath": PATH, "readOnly": True}
    if not pods.add_mount(pod, container, mount):
        return pod
    rest = f":{given['value']}" if given and given.get("value") else ""
    ours = {"name": _PYTHONPATH, "value": f"{PATH}{rest}"}
    value = f"attempt={attempt},after={policy.after_seconds},files={channel.PATH},url="
    told = {"name": VARIABLE, "value": value + channel.address(pod, identity, settings)}
    others = [each for each in variables if each is not given]
    if given is None:
        env = [told, ours, *others]
    else:  # what it refers to stays before it
        env = [told, *(ours if each is given else each for each in variables)]
    pods.change_container(pod, container, env=env)
    items = [{"key": name, "path": path} for name, path in OBSERVER.items()]
    source = {
        "secretName": names.channel_secret_name(identity.base),
        "defaultMode": _READABLE,
        "optional": True,
        "items": items,
    }
    volumes = pod["spec"].get("volumes") or ()
    pod["spec"]["volumes"] = [*volumes, {"name": VOLUME, "secret": source}]
    return pod
