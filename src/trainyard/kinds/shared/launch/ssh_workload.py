"""Pods of jobs that launch over ssh: keys, launch programs, hostfile and their mounts.

The user's image has none of these. All pods of a job mount one projected volume: programs from the
job's ConfigMap, keys from its Secret, and the pod's own task from its annotations. The task is not
in the ConfigMap because hostfile and arguments can change, by a resize or a resume: in annotations
they belong to the pod that is created for them, and are never stale. A second volume is private
memory of the pod: copies of the keys with modes that ssh accepts, and saved variables.
"""

from __future__ import annotations

import json
import shlex
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from trainyard.kinds.shared import child_names, labels
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.pods import pod_assembly, pod_template_rules
from trainyard.kinds.shared.run_policy import (
    AUTH_PATH,
    HOSTFILE_PATH,
    SSHD_PATH,
    WORKER,
    ResumeSpec,
)
from trainyard.kinds.shared.workload import (
    LAUNCHED_PATH,
    Dependent,
    Generated,
    Manifest,
    ReplicaKey,
    Workload,
)
from trainyard.kinds.shared.workload_factory import ReplicaStart, Spec, WorkloadFactory
from trainyard.kube.resources import CONFIG_MAPS, SECRETS
from trainyard.payloads.launch import FILES
from trainyard.payloads.launch.hostfile import address, host_blocks
from trainyard.payloads.payload_messages import (
    Elastic,
    LaunchDescription,
    LaunchLine,
    MasterPort,
    ReplicaAddresses,
)
from trainyard.payloads.shipping import TORCHRUN, programs, torchrun_program
from trainyard.schema.dataclass import dataclass
from trainyard.schema.model import INT32_MAX
from trainyard.schema.rules.pod_spec_rules import grace_seconds

LAUNCH_VOLUME = "trainyard-launch"
RUN_VOLUME = "trainyard-run"
KEYS_VOLUME = "trainyard-ssh"
EMPTY_VOLUME = "trainyard-sshd"
LAUNCH_PATH = "/t9k/launch"
RUN_PATH = "/t9k/run"
DEEPSPEED_HOSTFILE_PATH = "/job/hostfile"
"""The default of ``deepspeed``, which its autotuner relies on (decision 15)."""
PRIVILEGE_SEPARATION_PATH = "/run/sshd"

KEY_FILES = ("id_ed25519", "ssh_host_ed25519_key", "ssh_host_ed25519_key.pub", "authorized_keys")
READABLE = 0o444
"""Images that do not run as root must read the keys too; ssh refuses such modes, so the programs
copy the keys (decision 18)."""
RUN_SIZE = "16Mi"
GRACE_MARGIN_SECONDS = 5
PROBE_DELAY_SECONDS = 5
"""Most launches have started by then. Each failed probe is a warning event of the kubelet."""

CLIENT_CONFIG = """\
Host *
    Port {port}
    IdentityFile {run}/ssh/id_ed25519
    UserKnownHostsFile {run}/ssh/known_hosts
    StrictHostKeyChecking yes
    LogLevel ERROR
"""
"""ssh's configuration for users who launch by hand. The programs have their own (decision 29)."""


def dependents(identity: OwnerIdentity, hostfile: str, config: str) -> tuple[Dependent, ...]:
    """The job's Secret and ConfigMap. The ConfigMap's hostfile is only for users to look at."""

    def secret(name: str) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": identity.metadata(name),
            "type": "Opaque",
            "stringData": {"config": config},
        }

    files = {**programs(FILES), TORCHRUN: torchrun_program(elastic=False)}

    def config_map(name: str) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": identity.metadata(name),
            "data": {"hostfile": hostfile, **files},
        }

    keys = child_names.ssh_secret_name(identity.base)
    launch = child_names.hostfile_name(identity.base)
    return (
        Dependent(SECRETS, keys, secret, generated=Generated.SSH_KEYS),
        Dependent(CONFIG_MAPS, launch, config_map),
    )


@dataclass(frozen=True, slots=True)
class SshPod:
    """What one pod of an ssh-launched job does. `launch` None: it only serves ssh."""

    identity: OwnerIdentity
    container: str
    """The container that runs sshd and the launch."""
    port: int
    hosts: Sequence[str]
    places: ReplicaAddresses
    sshd: str = SSHD_PATH
    auth_path: str = AUTH_PATH
    launch: LaunchLine | None = None
    hostfile: str | None = None
    report_sessions: bool = False
    disable_custom_env: bool = False
    elastic: Elastic | None = None
    workers_stay: bool = False
    """Whether a failed launch may be started again while the other replicas keep running
    (decision 18)."""
    joins: bool = False
    """Whether it joins running replicas of an elastic job (decision 131)."""
    debug: Sequence[str] | None = None
    probe_seconds: int = 10
    """Period of the startup probe of the launch."""


class SshWorkloadFactory(WorkloadFactory[Spec]):
    """A job whose workers serve ssh, and one of whose pods launches the training on them."""

    @property
    @abstractmethod
    def hostfile(self) -> str:
        """The list of workers in the launcher's format."""

    @abstractmethod
    def ssh_pod(self, key: ReplicaKey, start: ReplicaStart) -> SshPod:
        """What a replica's pod does."""

    @abstractmethod
    def typed_command_line(self, launch: LaunchLine) -> list[str]:
        """The launcher's command line, as a user would type it (decision 109)."""

    @property
    def starts_ranks(self) -> bool:
        """Our programs make the environment of the ranks' ssh sessions."""
        return True

    def replaced_commands(
        self, key: ReplicaKey, training: Manifest, debug: Manifest
    ) -> dict[str, str]:
        """The command of the pod that launches; the others only serve ssh, in debug mode too."""
        node = self.ssh_pod(key, ReplicaStart(None, None))
        if node.launch is None:
            return {}
        launch = node.launch
        if launch["kind"] != "command":
            return {node.container: shlex.join(self.typed_command_line(launch))}
        script = ["-c", launch["script"]] if "script" in launch else []
        line = shlex.join([*launch["argv"], *script])
        return {node.container: f"export TRAINYARD_HOSTFILE={HOSTFILE_PATH}; {line}"}

    def host_name(self, key: ReplicaKey) -> str:
        """`worker-0`: the same in hostfile, DNS and ssh, and known when the manifest is written
        (decision 110)."""
        return f"{key.type}-{key.ordinal}"

    @cached_property
    def hosts(self) -> list[str]:
        """The host names of the workers by rank."""
        return [self.host_name(key) for key in self._workers(self.counts[WORKER])]

    def host(self, key: ReplicaKey) -> str:
        return address(self.places, self.host_name(key))

    @staticmethod
    def _workers(count: int) -> list[ReplicaKey]:
        return [ReplicaKey(WORKER, index) for index in range(count)]

    @cached_property
    def places(self) -> ReplicaAddresses:
        """Where the hosts are reached, including those that an elastic job may still get."""
        if not self.settings.plain_processes:
            return {"domain": self.domain}
        most = self.elastic.max_replicas if self.elastic else self.counts[WORKER]
        loopback = child_names.loopback_address
        found = {self.host_name(k): loopback(self.pod_name(k)) for k in self._workers(most)}
        return {"addresses": found}

    def workload(self) -> Workload:
        policy: Any = self.spec
        decides = self.deciding_replica
        # A startup probe of the user does not say that the launch has started (decision 100).
        is_reported = decides is not None and "startupProbe" not in self.training(decides.type)
        return replace(
            super().workload(),
            launch_timeout_seconds=policy.run_policy.launch_timeout_seconds
            if is_reported and not self.spec.run_mode.debug.enabled
            else None,
        )

    def extra_dependents(self) -> tuple[Dependent, ...]:
        config = host_blocks(self.places)
        config += CLIENT_CONFIG.format(port=self.settings.ssh_port, run=RUN_PATH)
        return dependents(self.identity, self.hostfile, config)

    def launch(self, pod: Manifest, key: ReplicaKey, start: ReplicaStart) -> None:
        if start.resume and start.resume.skip_init_container:
            pod_assembly.remove_init_containers(pod)
        if start.debug:
            pod_assembly.wait_for_developer(pod, self.container(key.type), start.debug)
        equip(pod, self.ssh_pod(key, start))

    def command(self, resume: ResumeSpec | None) -> list[str] | None:
        """The command that replaces the launch after a pause, if there is one."""
        if resume is None or resume.command is None:
            return None
        return [*resume.command, *(resume.args or ())]

    def master_port(self) -> MasterPort:
        """The port of rank 0, if pods share the ports of one machine (decision 41)."""
        if not self.settings.plain_processes:
            return {}
        return {"masterPort": self.endpoint(ReplicaKey(WORKER, 0)).port}


def equip(pod: Manifest, node: SshPod) -> None:
    """Give an assembled pod its annotations, volumes, mounts and command."""
    container = pod_template_rules.container_of(pod, node.container)
    annotations = pod["metadata"]["annotations"]
    annotations[labels.LAUNCH] = json.dumps(_description(pod, container, node), sort_keys=True)
    if node.hostfile is not None:
        annotations[labels.HOSTFILE] = node.hostfile
    mounts = _mounts(container, node)
    used = {mount["name"] for mount in mounts}
    volumes = [volume for volume in _volumes(node) if volume["name"] in used]
    pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or ()), *volumes]
    pod_ip = {"name": "TRAINYARD_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    pod_assembly.change_container(
        pod,
        node.container,
        command=["/usr/bin/env", "python3", "-IS", f"{LAUNCH_PATH}/supervise.py"],
        args=[
            *("--spec", f"{LAUNCH_PATH}/launch.json"),
            *("--keys", LAUNCH_PATH),
            *("--run", RUN_PATH),
        ],
        env=[pod_ip, *(container.get("env") or ())],
        volumeMounts=[*(container.get("volumeMounts") or ()), *mounts],
        startupProbe=container.get("startupProbe") or (_probe(node) if node.launch else None),
    )


def _probe(node: SshPod) -> dict[str, Any]:
    """Succeeds once the training has begun; until then it prints what the launch waits for.

    It never gives up: whether the launch waits too long depends on the other replicas, of which a
    kubelet knows nothing (decision 100).
    """
    # A note is reported once although the launch has started (decision 128).
    script = f"cat {RUN_PATH}/waits 2>&-; test -e {LAUNCHED_PATH} && ! rm {RUN_PATH}/note 2>&-"
    return {
        "exec": {"command": ["/bin/sh", "-c", script]},
        "initialDelaySeconds": PROBE_DELAY_SECONDS,
        "periodSeconds": node.probe_seconds,
        "timeoutSeconds": node.probe_seconds,
        "failureThreshold": INT32_MAX,
    }


def _description(pod: Manifest, container: Mapping[str, Any], node: SshPod) -> LaunchDescription:
    variables = container.get("env") or ()
    found: LaunchDescription = {
        "pod": pod["metadata"]["name"],
        "port": node.port,
        "sshd": node.sshd,
        "graceSeconds": max(grace_seconds(pod["spec"]) - GRACE_MARGIN_SECONDS, 1),
        "places": node.places,
        "reportSessions": node.report_sessions,
        "disableCustomEnv": node.disable_custom_env,
        "customEnv": [variable["name"] for variable in variables],
    }
    if not node.disable_custom_env:
        found["literalEnv"] = [v["name"] for v in variables if "$(" not in v.get("value", "$(")]
    if node.joins:
        found["joins"] = True
    if node.debug is not None:
        found["debug"] = list(node.debug)
    elif node.launch is not None:
        found["hosts"] = list(node.hosts)
        found["launch"] = node.launch
        found["workersStay"] = node.workers_stay
        if node.elastic is not None:
            found["elastic"] = node.elastic
    return found


def _volumes(node: SshPod) -> list[dict[str, Any]]:
    annotated = [("launch.json", labels.LAUNCH)]
    if node.hostfile is not None:
        annotated.append(("hostfile", labels.HOSTFILE))
    items = [
        {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
        for path, annotation in annotated
    ]
    files = [{"key": name, "path": name} for name in (*FILES, TORCHRUN)]
    keys = [{"key": name, "path": name} for name in KEY_FILES]
    secret = child_names.ssh_secret_name(node.identity.base)
    sources: list[dict[str, Any]] = [
        {"configMap": {"name": child_names.hostfile_name(node.identity.base), "items": files}},
        {"secret": {"name": secret, "items": keys}},
        {"downwardAPI": {"items": items}},
    ]
    by_hand = [{"key": name, "path": name} for name in ("config", *KEY_FILES)]
    return [
        {"name": LAUNCH_VOLUME, "projected": {"defaultMode": READABLE, "sources": sources}},
        {"name": RUN_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": RUN_SIZE}},
        {"name": EMPTY_VOLUME, "emptyDir": {}},
        {
            "name": KEYS_VOLUME,
            "secret": {"secretName": secret, "defaultMode": READABLE, "items": by_hand},
        },
    ]


def _mounts(container: Mapping[str, Any], node: SshPod) -> list[dict[str, Any]]:
    """Our mounts, except where the user's container has something mounted already."""
    mounts: list[dict[str, Any]] = [
        {"name": LAUNCH_VOLUME, "mountPath": LAUNCH_PATH, "readOnly": True},
        {"name": RUN_VOLUME, "mountPath": RUN_PATH},
        {"name": EMPTY_VOLUME, "mountPath": PRIVILEGE_SEPARATION_PATH},
        {"name": KEYS_VOLUME, "mountPath": node.auth_path, "readOnly": True},
    ]
    if node.hostfile is not None:
        mounts += [
            {"name": LAUNCH_VOLUME, "mountPath": path, "subPath": "hostfile", "readOnly": True}
            for path in (HOSTFILE_PATH, DEEPSPEED_HOSTFILE_PATH)
        ]
    taken = {mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts") or ()}
    if "/job" in taken:
        taken.add(DEEPSPEED_HOSTFILE_PATH)
    return [mount for mount in mounts if mount["mountPath"] not in taken]
