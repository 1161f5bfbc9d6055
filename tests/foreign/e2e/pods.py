"""Pods, their containers and environment: test/e2e/common/node and test/e2e/node."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.foreign.e2e.storage import AMOUNTS, allocatable, amount, mounted, volume
from tests.foreign.e2e.world import (
    STRATEGIC,
    Object,
    Place,
    Play,
    condition,
    container,
    expects,
    served,
)
from trainyard.kube.errors import NotFound

here = partial(expects, "pods")
SLEEP = "trap exit TERM; while :; do sleep 0.1; done"


def printed(script: str, wanted: str, container: Object, **spec: Any) -> Play:
    """A pod prints that."""

    async def play(place: Place) -> None:
        await place.make("configmaps", "source", data={"data_1": "value-1", "data_2": "value-2"})
        await place.make("secrets", "source", stringData={"data_1": "value-1"})
        text = await place.run(script, container=container, **spec)
        assert text.split() == wanted.split(), text

    return play


def variable(name: str, **source: Any) -> Object:
    return {"name": name, "valueFrom": source}


def env(*variables: Object) -> Object:
    return {"env": list(variables)}


# Environment.

for _what, _kind in (("ConfigMap", "configMap"), ("Secrets", "secret")):
    _key = {f"{_kind}KeyRef": {"name": "source", "key": "data_1"}}
    _name = (
        "be consumable via environment variable"
        if _kind == "configMap"
        else "be consumable from pods in env vars"
    )
    here(f"{_what} should {_name}")(printed("echo $A", "value-1", env(variable("A", **_key))))
    here(f"{_what} should be consumable via the environment")(
        printed(
            "echo $data_1 $p_data_1",
            "value-1 value-1",
            {
                "envFrom": [
                    {f"{_kind}Ref": {"name": "source"}},
                    {"prefix": "p_", f"{_kind}Ref": {"name": "source"}},
                ]
            },
        )
    )


async def empty_key(plural: str, place: Place) -> None:
    await place.refused(422, "POST", plural, {"metadata": {"name": "a"}, "data": {"": "dmFs"}})


async def lifecycle(plural: str, place: Place) -> None:
    """Made, found by its label, changed, and gone with those of its label."""
    await place.make(plural, "a", data={"k": "MQ=="}, metadata={"labels": {"of": "test"}})
    await place.patch(f"{plural}/a", {"data": {"k": "Mg=="}, "metadata": {"labels": {"n": "2"}}})
    found = await place.ask("GET", f"{plural}?labelSelector=of=test,n=2")
    assert [each["data"] for each in found["items"]] == [{"k": "Mg=="}]
    await place.ask("DELETE", f"{plural}?labelSelector=of=test")
    assert not (await place.ask("GET", f"{plural}?labelSelector=of=test"))["items"]


here("ConfigMap should fail to create ConfigMap with empty key")(partial(empty_key, "configmaps"))
here("Secrets should fail to create secret due to empty secret key")(partial(empty_key, "secrets"))
here("ConfigMap should run through a ConfigMap lifecycle")(partial(lifecycle, "configmaps"))
here("Secrets should patch a secret")(partial(lifecycle, "secrets"))


def of_field(path: str) -> Object:
    return {"fieldRef": {"fieldPath": path}}


@here("Downward API should provide pod name, namespace and IP address as env vars")
async def _names(place: Place) -> None:
    fields = {"A": "metadata.name", "B": "metadata.namespace", "C": "status.podIP"}
    variables = [variable(name, **of_field(path)) for name, path in fields.items()]
    await place.start("p", "echo $A $B $C", container=env(*variables))
    pod = await place.ended("p")
    found = (await place.log("p")).split()
    assert found == ["p", place.namespace, pod["status"]["podIP"]]


@here("Downward API should provide pod UID as env vars")
async def _uid(place: Place) -> None:
    await place.start("p", "echo $A", container=env(variable("A", **of_field("metadata.uid"))))
    pod = await place.ended("p")
    assert (await place.log("p")).strip() == pod["metadata"]["uid"]


@here("Downward API should provide host IP as an env var")
async def _host(place: Place) -> None:
    await place.start("p", "echo $A", container=env(variable("A", **of_field("status.hostIP"))))
    pod = await place.ended("p")
    assert (await place.log("p")).strip() == pod["status"]["hostIP"]


def amounts(divisors: tuple[str, str]) -> Object:
    return env(
        *(
            variable(
                f"{kind}_{what}",
                resourceFieldRef={"resource": f"{kind}.{what}", "divisor": divisor},
            )
            for kind in ("limits", "requests")
            for what, divisor in zip(("cpu", "memory"), divisors, strict=True)
        )
    )


here(
    "Downward API should provide container's limits.cpu/memory and requests.cpu/memory as env vars"
)(
    printed(
        "echo $limits_cpu $limits_memory $requests_cpu $requests_memory",
        f"2 {64 << 20} 1 {32 << 20}",
        {**amounts(("1", "1")), "resources": AMOUNTS},
    )
)


@here("Downward API should provide default limits.cpu/memory from node allocatable")
async def _defaults(place: Place) -> None:
    text = await place.run("echo $limits_cpu $limits_memory", container=amounts(("1", "1")))
    kinds = ("limits.cpu", "limits.memory")
    assert text.split() == [await allocatable(place, amount(kind)) for kind in kinds]


_FOO = ({"name": "FOO", "value": "foo"}, {"name": "BAR", "value": "[$(FOO)]"})
here("Variable Expansion should allow composing env vars into new env vars")(
    printed("echo $BAR", "[foo]", env(*_FOO))
)
here("Variable Expansion should allow substituting values in a container's command")(
    printed("", "[foo]", {**env(*_FOO), "command": ["sh", "-c", "echo '$(BAR)'"]})
)
here("Variable Expansion should allow substituting values in a container's args")(
    printed("", "[foo]", {**env(*_FOO), "command": ["sh", "-c"], "args": ["echo '$(BAR)'"]})
)

# Parts of volumes, named by variables.


def expanded(value: str) -> Object:
    """Of a container: a variable, and a mount of the part of a volume that it names."""
    return {
        **env({"name": "PART", "value": value}),
        "volumeMounts": [
            {"name": "v", "mountPath": "/part", "subPathExpr": "$(PART)"},
            {"name": "v", "mountPath": "/whole"},
        ],
    }


EMPTY = volume({"emptyDir": {}})
_SUBPATH = "substituting values in a volume subpath"


@here(f"Variable Expansion should allow {_SUBPATH}")
async def _expanded(place: Place) -> None:
    script = "echo here > /part/f; cat /whole/foo/f"
    assert await place.run(script, container=expanded("foo"), volumes=[EMPTY]) == "here\n"


async def not_started(value: str, place: Place) -> None:
    await place.start("p", "touch /whole/ran", container=expanded(value), volumes=[EMPTY])
    await place.until("p", refused)
    assert "running" not in container(place.world.pods[place.namespace, "p"])["state"]


def refused(pod: Object) -> bool:
    """Its container cannot be made."""
    states = container(pod).get("state", {}).values()
    return any(
        each.get("reason") in ("CreateContainerConfigError", "ContainerCannotRun")
        for each in states
    )


here(f"Variable Expansion should fail {_SUBPATH} with absolute path")(partial(not_started, "/tmp"))
here(f"Variable Expansion should fail {_SUBPATH} with backticks")(partial(not_started, "../`x`"))


@here("Variable Expansion should succeed in writing subpaths in container")
async def _written(place: Place) -> None:
    parts = {
        **env(variable("PART", **of_field("metadata.annotations['part']"))),
        "volumeMounts": expanded("")["volumeMounts"],
    }
    text = await place.run(
        "echo here > /part/f; cat /whole/a/b/f",
        container=parts,
        volumes=[EMPTY],
        metadata={"annotations": {"part": "a/b"}},
    )
    assert text == "here\n"


@here(
    "Variable Expansion should verify that a failing subpath expansion can be modified during the "
    "lifecycle of a container"
)
async def _later(place: Place) -> None:
    parts = {
        **env(variable("PART", **of_field("metadata.annotations['part']"))),
        "volumeMounts": expanded("")["volumeMounts"],
    }
    await place.start(
        "p", SLEEP, container=parts, volumes=[EMPTY], metadata={"annotations": {"part": "/abs"}}
    )
    await place.until("p", refused)
    await place.patch("pods/p", {"metadata": {"annotations": {"part": "rel"}}})
    await place.ready("p")


# What runs, and how it ends.

here("Containers should be able to override the image's default command and arguments")(
    printed("", "one two", {"command": ["echo"], "args": ["one", "two"]})
)
here("Containers should be able to override the image's default command (container entrypoint)")(
    printed("", "one", {"command": ["echo", "one"]})
)


async def of_image(parts: Object, place: Place) -> None:
    """The command is the image's own."""
    await place.start("p", "", container={"command": None, **parts})
    pod = await place.ended("p")
    assert pod["status"]["phase"] == "Succeeded", pod["status"]


here("Containers should be able to override the image's default arguments (container cmd)")(
    partial(of_image, {"args": ["override", "arguments"]})
)
here("Containers should use the image defaults if command and args are blank")(
    partial(of_image, {})
)


async def runs_again(place: Place) -> None:
    """A container that ends with 1 until it has run three times, and then with 0."""
    script = "echo x >> /v/f; [ `wc -l < /v/f` -ge 3 ]"
    once = {"container": mounted("/v"), "volumes": [EMPTY]}
    for policy in ("Always", "OnFailure", "Never"):
        await place.start(policy.lower(), script, restartPolicy=policy, **once)
    pod = await place.ended("never")
    assert pod["status"]["phase"] == "Failed"
    assert container(pod)["restartCount"] == 0
    pod = await place.ended("onfailure")
    assert pod["status"]["phase"] == "Succeeded"
    assert container(pod)["restartCount"] == 2
    pod = await place.until("always", lambda pod: container(pod).get("restartCount", 0) >= 2)
    assert pod["status"]["phase"] == "Running"


here(
    "Container Runtime blackbox test when starting a container that exits should run with the "
    "expected status"
)(runs_again)


def message(script: str, wanted: str, **parts: Any) -> Play:
    async def play(place: Place) -> None:
        await place.start("p", script, container=parts)
        pod = await place.ended("p")
        assert container(pod)["state"]["terminated"].get("message", "") == wanted

    return play


_FALLBACK = {"terminationMessagePolicy": "FallbackToLogsOnError"}
_MESSAGE = (
    "Container Runtime blackbox test on terminated container should report termination message"
)
here(
    f"{_MESSAGE} as empty when pod succeeds and TerminationMessagePolicy "
    f"FallbackToLogsOnError is set"
)(message("echo DONE", "", **_FALLBACK))
here(
    f"{_MESSAGE} from file when pod succeeds and TerminationMessagePolicy "
    f"FallbackToLogsOnError is set"
)(message("printf OK > /dev/termination-log; echo DONE", "OK", **_FALLBACK))
here(f"{_MESSAGE} from log output if TerminationMessagePolicy FallbackToLogsOnError is set")(
    message("printf DONE; exit 1", "DONE", **_FALLBACK)
)
here(f"{_MESSAGE} if TerminationMessagePath is set as non-root user and at a non-default path")(
    message(
        "printf DONE > /dev/termination-custom-log",
        "DONE",
        terminationMessagePath="/dev/termination-custom-log",
        securityContext={"runAsUser": 1000},
    )
)


@here("Kubelet when scheduling a busybox command in a pod should print the output to logs")
async def _logs(place: Place) -> None:
    assert await place.run("echo 'Hello World'; echo also >&2") == "Hello World\nalso\n"


async def fails(place: Place) -> Object:
    await place.start("p", "exit 1", restartPolicy="Always")
    return await place.until(
        "p",
        lambda pod: (
            {"state", "lastState"} & container(pod).keys()
            and (container(pod).get("lastState") or container(pod)["state"]).get("terminated")
        ),
    )


@here(
    "Kubelet when scheduling a busybox command that always fails in a pod should have an "
    "terminated reason"
)
async def _reason(place: Place) -> None:
    found = container(await fails(place))
    assert (found.get("lastState") or found["state"])["terminated"]["reason"] == "Error"


@here(
    "Kubelet when scheduling a busybox command that always fails in a pod should be "
    "possible to delete"
)
async def _deleted(place: Place) -> None:
    await fails(place)
    await place.ask("DELETE", "pods/p")
    await place.gone("p")


@here("Kubelet when scheduling an agnhost Pod with hostAliases should write entries to /etc/hosts")
async def _aliases(place: Place) -> None:
    aliases = [{"ip": "123.45.67.89", "hostnames": ["foo", "bar"]}]
    lines = (await place.run("cat /etc/hosts", hostAliases=aliases)).splitlines()
    assert ["123.45.67.89", "foo", "bar"] in [line.split() for line in lines]


here("Kubelet when scheduling a read only busybox container should not write to root filesystem")(
    printed(
        "(echo a > /file) 2>/dev/null || echo refused",
        "refused",
        {"securityContext": {"readOnlyRootFilesystem": True}},
    )
)

# Users and rights.

here(
    "Security Context When creating a container with runAsUser should run the container "
    "with uid 65534"
)(printed("id -u", "65534", {"securityContext": {"runAsUser": 65534}}))
here(
    "Security Context should support container.SecurityContext.RunAsUser And "
    "container.SecurityContext.RunAsGroup"
)(
    printed(
        "id -u; id -g", "1001 2002", {"securityContext": {"runAsUser": 1001, "runAsGroup": 2002}}
    )
)
here(
    "Security Context should support pod.Spec.SecurityContext.RunAsUser And "
    "pod.Spec.SecurityContext.RunAsGroup"
)(printed("id -u; id -g", "1001 2002", {}, securityContext={"runAsUser": 1001, "runAsGroup": 2002}))
here(
    "Security Context When creating a pod with readOnlyRootFilesystem should run the container "
    "with writable rootfs when readOnlyRootFilesystem=false"
)(
    printed(
        "echo a > /file && cat /file", "a", {"securityContext": {"readOnlyRootFilesystem": False}}
    )
)
here(
    "Security Context When creating a pod with privileged should run the container as unprivileged "
    "when false"
)(
    printed(
        "mount -t tmpfs none /mnt 2>/dev/null || echo refused",
        "refused",
        {"securityContext": {"privileged": False}},
    )
)
here(
    "Security Context when creating containers with AllowPrivilegeEscalation should not allow "
    "privilege escalation when false"
)(
    printed(
        "grep NoNewPrivs /proc/self/status",
        "NoNewPrivs: 1",
        {"securityContext": {"runAsUser": 1000, "allowPrivilegeEscalation": False}},
    )
)


@here("Sysctls should reject invalid sysctls")
async def _invalid(place: Place) -> None:
    sysctls = [{"name": name, "value": "1"} for name in ("foo-", "kernel.shmmax", "bar..")]
    spec = {"containers": [{"name": "c", "image": "i"}], "securityContext": {"sysctls": sysctls}}
    await place.refused(422, "POST", "pods", {"metadata": {"name": "p"}, "spec": spec})


here("Sysctls should support sysctls")(
    printed(
        "cat /proc/sys/kernel/shm_rmid_forced",
        "1",
        {},
        securityContext={"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]},
    )
)

# The pod as an object.


@here(
    "Pods Extended Pods Set QOS Class should be set on Pods with matching resource "
    "requests and limits for memory and cpu"
)
async def _class(place: Place) -> None:
    same = {"cpu": "10m", "memory": "10Mi"}
    resources = {"requests": same, "limits": same}
    pod = await place.start("p", "true", container={"resources": resources})
    assert pod["status"]["qosClass"] == "Guaranteed"


@here("Pods should get a host IP")
async def _address(place: Place) -> None:
    await place.start("p", SLEEP)
    pod = await place.ready("p")
    assert len(pod["status"]["hostIP"].split(".")) == 4
    assert pod["status"]["hostIPs"]


@here("Pods should be submitted and removed")
async def _removed(place: Place) -> None:
    await place.start("p", SLEEP, metadata={"labels": {"of": "test"}})
    await place.ready("p")
    assert len((await place.ask("GET", "pods?labelSelector=of=test"))["items"]) == 1
    gone = await place.ask("DELETE", "pods/p")
    assert gone["metadata"]["deletionTimestamp"]
    await place.gone("p")
    assert not (await place.ask("GET", "pods?labelSelector=of=test"))["items"]


@here("Pods should be updated")
async def _updated(place: Place) -> None:
    await place.start("p", SLEEP)
    found = await place.ready("p")
    del found["metadata"]["resourceVersion"]
    labels = {"time": "later"}
    await place.ask("PUT", "pods/p", {**found, "metadata": {**found["metadata"], "labels": labels}})
    assert len((await place.ask("GET", "pods?labelSelector=time=later"))["items"]) == 1


@here("Pods should allow activeDeadlineSeconds to be updated")
async def _deadline(place: Place) -> None:
    await place.start("p", SLEEP)
    await place.ready("p")
    await place.patch("pods/p", {"spec": {"activeDeadlineSeconds": 1}})
    pod = await place.ended("p")
    assert pod["status"]["reason"] == "DeadlineExceeded"


@here("Pods should delete a collection of pods")
async def _collection(place: Place) -> None:
    for name in ("a", "b", "c"):
        await place.start(name, SLEEP, metadata={"labels": {"of": "test"}})
    await place.ask("DELETE", "pods?labelSelector=of=test")
    for name in ("a", "b", "c"):
        await place.gone(name)


@here("Pods should patch a pod status")
async def _status(place: Place) -> None:
    await place.start("p", SLEEP)
    await place.ready("p")
    new = {"type": "example.com/Checked", "status": "True", "reason": "Test"}
    change = {"status": {"conditions": [new]}}
    await place.ask("PATCH", "pods/p/status", change, STRATEGIC)
    pod = await place.until("p", lambda pod: condition(pod, "example.com/Checked") == "True")
    assert condition(pod, "Ready") == "True"


@here("Pods should run through the lifecycle of Pods and PodStatus")
async def _through(place: Place) -> None:
    await place.start("p", SLEEP, metadata={"labels": {"of": "test"}})
    await place.ready("p")
    await place.patch("pods/p", {"metadata": {"labels": {"patched": "yes"}}})
    change = {"spec": {"containers": [{"name": "c", "image": "other"}]}}
    await place.ask("PATCH", "pods/p", change, STRATEGIC)
    found = await place.ask("GET", "pods/p/status")
    await place.ask("PUT", "pods/p/status", found)
    assert (await place.ask("GET", "pods?labelSelector=patched=yes"))["items"]
    await place.ask("DELETE", "pods?labelSelector=patched=yes")
    await place.gone("p")


@here("Lease lease API should be available")
async def _lease(place: Place) -> None:
    leases = "apis/coordination.k8s.io/v1|leases"
    made = await place.make(leases, "a", spec={"holderIdentity": "x", "leaseDurationSeconds": 30})
    made["spec"]["holderIdentity"] = "y"
    await place.ask("PUT", f"{leases}/a", made)
    found = await place.patch(f"{leases}/a", {"spec": {"leaseTransitions": 1}})
    assert found["spec"]["holderIdentity"] == "y"
    await place.make(leases, "b", metadata={"labels": {"of": "test"}})
    await place.ask("DELETE", f"{leases}?labelSelector=of=test")
    left = await place.ask("GET", leases)
    assert [each["metadata"]["name"] for each in left["items"]] == ["a"]
    await place.ask("DELETE", f"{leases}/a")
    try:
        await place.ask("GET", f"{leases}/a")
    except NotFound:
        return
    raise AssertionError("it is still there")


# Kinds that are not served.

for _name in (
    "delete a collection of pod templates",
    "replace a pod template",
    "run the lifecycle of PodTemplates",
):
    here(f"PodTemplates should {_name}")(served("", "podtemplates"))
for _name in (
    "reject a Pod requesting a deleted RuntimeClass",
    "reject a Pod requesting a non-existent RuntimeClass",
    "schedule a Pod requesting a RuntimeClass and initialize its Overhead",
    "schedule a Pod requesting a RuntimeClass without PodOverhead",
    "support RuntimeClasses API operations",
):
    here(f"RuntimeClass should {_name}")(served("node.k8s.io/v1", "runtimeclasses"))
