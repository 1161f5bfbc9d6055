"""`kubectl debug`: copies, which newer ones send as protobuf, and containers in running pods."""

from __future__ import annotations

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


async def test_a_container_in_a_running_pod_is_refused_in_words(cluster: Cluster) -> None:
    await cluster("create", "-f", "-", stdin=POD)
    said = await cluster(
        "debug", "p", "--image=busybox", "--profile=legacy", "--", "true", fails=True
    )
    assert "ephemeral containers are disabled for this cluster" in said


def without(spec: dict[str, Any], *keys: str) -> dict[str, Any]:
    """A spec but for some of it."""
    return {key: value for key, value in spec.items() if key not in keys}
