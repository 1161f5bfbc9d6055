"""`kubectl debug`: copies, which newer ones send as protobuf, and containers in running pods."""

from __future__ import annotations

import json
from typing import Any

from tests.embedded.kubectl import Cluster

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: digits}, annotations: {note: "ä"}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  activeDeadlineSeconds: 600
  nodeSelector: {disk: fast}
  hostname: host
  subdomain: sub
  hostAliases: [{ip: 10.0.0.1, hostnames: [a, b]}]
  securityContext: {runAsUser: 1000, runAsNonRoot: true, fsGroup: 2000, supplementalGroups: [3]}
  tolerations: [{key: gpu, operator: Exists, effect: NoExecute, tolerationSeconds: 0}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: zone, operator: In, values: [a, b]}]
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 5
        podAffinityTerm:
          topologyKey: host
          labelSelector: {matchLabels: {app: digits}}
  initContainers:
  - {name: first, image: i, command: [sh, -c, "exit 0"]}
  containers:
  - name: main
    image: i
    args: ["", "two words"]
    workingDir: /work
    ports: [{name: http, containerPort: 80, protocol: UDP}]
    env:
    - {name: PLAIN, value: "1"}
    - {name: EMPTY}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
    - {name: KEY, valueFrom: {secretKeyRef: {name: s, key: k, optional: false}}}
    envFrom: [{prefix: P_, configMapRef: {name: c, optional: true}}]
    resources: {limits: {cpu: 500m, memory: 1Gi, nvidia.com/gpu: "1"}, requests: {cpu: 100m}}
    readinessProbe: {httpGet: {path: /, port: http, httpHeaders: [{name: a, value: b}]}}
    startupProbe: {tcpSocket: {port: 80}, periodSeconds: 3}
    lifecycle: {preStop: {exec: {command: [sleep, "1"]}}}
    securityContext: {privileged: false, capabilities: {add: [SYS_PTRACE], drop: [ALL]}}
    volumeMounts:
    - {name: scratch, mountPath: /scratch, readOnly: true}
    - {name: all, mountPath: /all}
    tty: true
  volumes:
  - {name: scratch, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: claim, persistentVolumeClaim: {claimName: data}}
  - {name: shm, emptyDir: {}}
  - name: all
    projected:
      defaultMode: 256
      sources:
      - {secret: {name: s, items: [{key: k, path: p, mode: 0}]}}
      - {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
"""


async def test_a_copy_is_like_its_pod(cluster: Cluster) -> None:
    """But for probes, which kubectl leaves out, and the copy's name."""
    await cluster("create", "-f", "-", stdin=POD)
    command = ("debug", "p", "--copy-to=q", "--image=busybox", "--profile=legacy", "--container=d")
    await cluster(*command, "--attach=false", "--", "sleep", "5")
    (original, copy) = (cluster.registry.get("pods", "default", name)["spec"] for name in "pq")
    assert [each["name"] for each in copy["containers"]] == ["main", "d"]
    assert copy["containers"][1]["command"] == ["sleep", "5"]
    probes = ("readinessProbe", "startupProbe", "livenessProbe")
    assert {k: v for k, v in copy["containers"][0].items() if k not in probes} == {
        k: v for k, v in original["containers"][0].items() if k not in probes
    }
    assert without(copy, "containers") == without(original, "containers")


PATH = "/api/v1/namespaces/default/pods/p/ephemeralcontainers"
FIRST = {"name": "added", "image": "i", "command": ["true"]}


async def test_a_container_is_added_to_a_pod(cluster: Cluster) -> None:
    """kubectl waits for it to run, and no node runs pods here: the API takes it as it is sent."""
    await cluster("create", "-f", "-", stdin=POD)
    before = cluster.registry.get("pods", "default", "p")
    assert json.loads(await cluster("get", "--raw", PATH)) == before
    await add(cluster, before, {**FIRST, "targetContainerName": "main", "tty": True})
    after = cluster.registry.get("pods", "default", "p")
    (added,) = after["spec"].pop("ephemeralContainers")
    assert (
        added.items()
        >= {
            "targetContainerName": "main",
            "terminationMessagePath": "/dev/termination-log",
            "imagePullPolicy": "Always",
        }.items()
    )
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1


async def test_only_containers_are_added(cluster: Cluster) -> None:
    """What else of the pod is changed along with them does not count."""
    await cluster("create", "-f", "-", stdin=POD)
    before = cluster.registry.get("pods", "default", "p")
    other = {**before["spec"], "activeDeadlineSeconds": 1}
    status = {"phase": "Failed"}
    labelled = {**before["metadata"], "labels": {}}
    await add(cluster, {**before, "spec": other, "status": status, "metadata": labelled}, FIRST)
    after = cluster.registry.get("pods", "default", "p")
    assert after["spec"]["activeDeadlineSeconds"] == 600
    assert after["status"] == before["status"]
    assert after["metadata"]["labels"] == {"app": "digits"}


async def test_what_may_not_be_added_is_refused(cluster: Cluster) -> None:
    await cluster("create", "-f", "-", stdin=POD)
    before = cluster.registry.get("pods", "default", "p")
    said = await add(cluster, before, {**FIRST, "ports": [{"containerPort": 1}]}, fails=True)
    assert "cannot be set for an ephemeral container" in said
    assert cluster.registry.get("pods", "default", "p") == before


async def test_what_was_added_stays_as_it_is(cluster: Cluster) -> None:
    await cluster("create", "-f", "-", stdin=POD)
    last = {**FIRST, "name": "last"}
    await add(cluster, cluster.registry.get("pods", "default", "p"), last)
    pod = cluster.registry.get("pods", "default", "p")
    said = await add(
        cluster, {**pod, "spec": {**pod["spec"], "ephemeralContainers": []}}, fails=True
    )
    assert '"last" may not be removed' in said
    changed = {**last, "image": "another"}
    wanted = {**pod, "spec": {**pod["spec"], "ephemeralContainers": [changed]}}
    assert '"last" may not be changed' in await add(cluster, wanted, fails=True)
    again = {**pod, "spec": {**pod["spec"], "ephemeralContainers": [last]}}
    await add(cluster, again, {"name": "e", "image": "i"})  # defaults need not be repeated
    plain = json.dumps({"spec": {"ephemeralContainers": [changed]}})
    said = await cluster("patch", "pod", "p", "-p", plain, fails=True)
    assert "added by the subresource ephemeralcontainers only" in said


async def test_a_pod_that_has_ended_is_debugged_by_a_copy(cluster: Cluster) -> None:
    """kubectl waits for ever, as on any cluster, but not without a word."""
    await cluster("create", "-f", "-", stdin=POD)

    def ended(pod: dict[str, Any]) -> dict[str, Any]:
        return {**pod, "status": {**pod["status"], "phase": "Failed"}}

    await cluster.registry.update("pods", "default", "p", ended, subresource="status")
    pod = cluster.registry.get("pods", "default", "p")
    spec = {**pod["spec"], "ephemeralContainers": [FIRST]}
    body = json.dumps({**pod, "spec": spec})
    said = await cluster.warnings("replace", "--raw", PATH, "-f", "-", stdin=body)
    assert "kubectl debug p --copy-to=NAME" in said


async def add(
    cluster: Cluster, pod: dict[str, Any], *containers: dict[str, Any], fails: bool = False
) -> str:
    """Write the pod with more of them."""
    spec = pod["spec"]
    wanted = [*spec.get("ephemeralContainers", ()), *containers]
    body = json.dumps({**pod, "spec": {**spec, "ephemeralContainers": wanted}})
    return await cluster("replace", "--raw", PATH, "-f", "-", stdin=body, fails=fails)


def without(spec: dict[str, Any], *keys: str) -> dict[str, Any]:
    """A spec but for some of it."""
    return {key: value for key, value in spec.items() if key not in keys}
