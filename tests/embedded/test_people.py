"""Two users of a machine on one background cluster, and a third who may not use it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.command_line import CommandLine, Object, job, shell, until
from tests.embedded.people import ALICE, BOB, VISION, Machine
from tests.tools import kubectl_path, oldest_and_newest_kubectl

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become other users")


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A cluster for Alice, by her name, and for Bob, by a group."""
    made = Machine()
    made.root.environment["ROOTS_TOKEN"] = "not for them"
    try:
        shared, closed = made.folder / "shared", made.root.folder / "inner"
        shared.mkdir()
        os.chown(shared, 0, VISION)
        shared.chmod(0o2770)
        closed.mkdir()
        closed.chmod(0o777)  # in a folder that nobody else may enter
        volumes = ["--volume", f"shared={shared}", "--volume", f"closed={closed}"]
        made.root.run("up", "--allow-user", "alice", "--allow-group", "vision", *volumes)
        yield made
    finally:
        made.close()


def _submit(line: CommandLine, name: str, script: str, **more: object) -> None:
    line.run("submit", "-f", line.manifest(f"{name}.yaml", job(name, shell(script), **more)))


def test_everybodys_jobs_go_into_a_namespace_of_their_own(machine: Machine) -> None:
    for line in (machine.root, machine.alice, machine.bob):
        _submit(line, "same", "true")
        line.run("wait", "same", "--timeout", "120")
    for line, namespace in ((machine.root, "default"), (machine.alice, "alice")):
        assert re.search(rf"Namespace: +{namespace}\n", line.run("show", "same"))
    header, *rows = [line.split() for line in machine.bob.run("list", "-A").splitlines()]
    assert header[-1] == "OWNER"
    seen = {(row[0], row[-1]) for row in rows}
    assert seen == {("alice", "alice"), ("bob", "bob"), ("default", "root")}
    assert "OWNER" not in machine.bob.run("list")
    assert re.search(r"Owner: +alice\n", machine.bob.run("show", "same", "-n", "alice"))


def test_a_user_who_was_not_allowed_sees_nothing(machine: Machine) -> None:
    for command in (["list"], ["list", "-A"], ["status"], ["kubeconfig"]):
        said = machine.carol.run(*command, code=None)
        assert "user carol may not use this cluster" in said, command
        assert "--allow-user carol" in said
    assert "cannot" in machine.carol.run("down", code=1)
    state = machine.folder / "cluster"
    everything = [str(state), *map(str, state.rglob("*"))]
    assert len(everything) > 20
    readable = "import os, sys; print(*(p for p in sys.argv[1:] if os.access(p, os.R_OK)))"
    look = [*machine.carol.wrapper, sys.executable, "-c", readable, *everything]
    seen = subprocess.run(look, capture_output=True, text=True, check=True).stdout.split()
    assert sorted(seen) == [f"{state}/api.sock", f"{state}/cluster.json"]


def test_jobs_of_others_can_be_seen_and_nothing_more(machine: Machine) -> None:
    _submit(machine.alice, "hers", "echo a word of hers; sleep 3600")
    machine.alice.run("wait", "hers", "--for", "phase=Running", "--timeout", "120")
    until(lambda: "of hers" in machine.alice.run("logs", "hers"), "Alice reads her log")
    assert "Running" in machine.bob.run("list", "-n", "alice")
    assert "Running" in machine.bob.run("show", "hers", "-n", "alice")
    assert "hers" in machine.bob.run("explain", "hers", "-n", "alice", code=None)
    for command in (
        ["logs", "hers"],
        ["exec", "hers", "--", "true"],
        ["delete", "hers"],
        ["pause", "hers"],
    ):
        said = machine.bob.run(*command[:2], "-n", "alice", *command[2:], code=1)
        assert re.search(r'User "bob" cannot \w+ resource ".*" in the namespace "alice"', said), (
            said
        )
        assert "word of hers" not in said
    manifest = machine.bob.manifest("foreign.yaml", job("foreign", shell("true")))
    assert 'User "bob" cannot create' in machine.bob.run(
        "submit", "-n", "alice", "-f", manifest, code=1
    )
    assert "cannot create" in machine.bob.run("submit", "-n", "default", "-f", manifest, code=1)
    assert "Running" in machine.alice.run("list")
    machine.root.run("delete", "hers", "-n", "alice", "--wait")


def test_queues_are_the_owners(machine: Machine) -> None:
    assert "default" in machine.bob.run("queue", "list")
    assert 'User "bob" cannot create' in machine.bob.run("queue", "create", "mine", code=1)
    assert 'User "bob" cannot patch' in machine.bob.run("queue", "close", "default", code=1)


def test_all_is_all_of_ones_own(machine: Machine) -> None:
    for line in (machine.alice, machine.bob):
        _submit(line, "left", "true")
    refused = machine.bob.run("delete", "--all", code=1)
    assert "bob/left" in refused
    assert "alice/" not in refused
    machine.bob.run("delete", "--all", "-A", "--yes", "--wait")
    assert "There are no jobs" in machine.bob.run("list")
    assert "left" in machine.alice.run("list")


def test_only_its_owner_ends_the_cluster(machine: Machine) -> None:
    assert "belongs to root" in machine.alice.run("down", code=1)
    assert "the cluster is already up" in machine.alice.run("up")


@pytest.mark.parametrize("version", oldest_and_newest_kubectl())
def test_kubectl_is_everybody_with_a_kubeconfig_of_their_own(
    machine: Machine, version: str
) -> None:
    configs = {line: line.run("kubeconfig").strip() for line in (machine.alice, machine.bob)}
    assert Path(configs[machine.bob]).stat().st_uid == BOB.uid
    assert Path(configs[machine.bob]).stat().st_mode & 0o777 == 0o600

    def kubectl(line: CommandLine, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*line.wrapper, kubectl_path(version), "--kubeconfig", configs[line], *arguments],
            env={**line.environment, "HOME": str(line.folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    manifest = machine.alice.manifest("kept.yaml", job("kept", shell("echo mine; sleep 3600")))
    assert kubectl(machine.alice, "apply", "-f", manifest).returncode == 0
    secret = kubectl(machine.alice, "create", "secret", "generic", "key", "--from-literal=a=b")
    assert secret.returncode == 0, secret.stderr
    assert "kept" in kubectl(machine.bob, "get", "pj", "-A").stdout
    running = "--for=jsonpath={.status.phase}=Running"
    kubectl(machine.alice, "wait", "pj/kept", running, "--timeout=120s")
    pods = kubectl(machine.alice, "get", "pods", "-o", "name").stdout.splitlines()
    pod = next(name for name in pods if name.startswith("pod/kept-"))
    assert kubectl(machine.alice, "exec", pod, "--", "id", "-un").stdout == "alice\n"
    until(lambda: kubectl(machine.alice, "logs", pod).stdout == "mine\n", "Alice reads her log")
    for refused in (
        ["delete", "pj", "kept"],
        ["get", "secret", "key"],
        ["get", "secrets"],
        ["annotate", "pj", "kept", "a=b"],
        ["create", "configmap", "new"],
        ["logs", pod],
        ["exec", pod, "--", "id"],
        ["port-forward", pod, "1:1"],
    ):
        said = kubectl(machine.bob, "-n", "alice", *refused)
        assert said.returncode == 1
        assert re.search(r'is forbidden: User "bob" cannot \w+ resource ".*"', said.stderr), said
    assert "Forbidden" in kubectl(machine.bob, "get", "secrets", "-A").stderr
    if version != "1.27":  # whoami came with 1.28
        assert "bob" in kubectl(machine.bob, "auth", "whoami").stdout
    for question, answer in (
        ("create pods", "yes"),
        ("delete pj -n alice", "no"),
        ("list pj -A", "yes"),
        ("get secrets -A", "no"),
        ("get pods --subresource=log -n alice", "no"),
        ("create queues.scheduler.tensorstack.dev", "no"),
        ("create namespaces", "yes"),
    ):
        assert kubectl(machine.bob, "auth", "can-i", *question.split()).stdout.strip() == answer, (
            question
        )
    assert "not possible" not in kubectl(machine.bob, "auth", "can-i", "--list").stderr
    assert kubectl(machine.alice, "delete", "pj/kept", "secret/key").returncode == 0


def test_namespaces_are_ones_own_by_their_name(machine: Machine) -> None:
    one = job("one", shell("true"))
    one["metadata"]["namespace"] = "bob-papers"
    machine.bob.run("submit", "-f", machine.bob.manifest("n.yaml", one))
    assert "one" in machine.bob.run("list", "-n", "bob-papers")
    for name in ("papers", "alice", "alice-papers"):
        one["metadata"]["namespace"] = name
        said = machine.bob.run("submit", "-f", machine.bob.manifest("n.yaml", one), code=1)
        assert "is forbidden" in said


def test_a_token_that_was_renewed_opens_nothing(machine: Machine) -> None:
    before = json.loads(Path(machine.bob.run("kubeconfig").strip()).read_text())
    assert json.loads(Path(machine.bob.run("kubeconfig").strip()).read_text()) == before
    after = json.loads(Path(machine.bob.run("kubeconfig", "--renew").strip()).read_text())
    assert after != before
    assert "only the cluster's owner" in machine.bob.run(
        "kubeconfig", "--renew", "--user", "alice", code=1
    )
    assert "worth nothing" in machine.root.run("kubeconfig", "--renew", "--user", "bob")
    again = json.loads(Path(machine.bob.run("kubeconfig").strip()).read_text())
    tokens = {config["users"][0]["user"]["token"] for config in (before, after, again)}
    assert len(tokens) == 3


@contextmanager
def _elsewhere(line: CommandLine, folder: Path) -> Iterator[CommandLine]:
    """Another state folder for the block."""
    kept, name = line.environment, "TRAINYARD_STATE_DIR"
    line.environment = {**kept, name: str(folder)}
    try:
        yield line
    finally:
        line.environment = kept


def test_a_cluster_that_others_cannot_use_is_not_started_for_them(machine: Machine) -> None:
    with _elsewhere(machine.alice, machine.alice.folder / "state") as alice:
        assert "only root" in alice.run("up", "--allow-user", "bob", code=1)
    assert "no user nobody-here" in machine.root.run("up", "--allow-user", "nobody-here", code=1)
    with _elsewhere(machine.root, machine.root.folder / "state") as root:
        said = root.run("up", "--allow-user", "bob", code=1)
        assert f"they may not enter {machine.root.folder}" in said
    with _elsewhere(machine.root, machine.folder / "plain") as root:
        said = root.run("up", "--allow-user", "bob", "--isolation", "plain", code=1)
        assert "others cannot share a cluster with isolation plain" in said


def test_pods_run_as_who_submitted_them_and_have_nothing_of_roots(machine: Machine) -> None:
    script = (
        "id; echo HOME=$HOME USER=$USER PWD=$PWD TOKEN=$ROOTS_TOKEN; touch mine; "
        "grep -E 'NoNewPrivs|CapEff|CapBnd' /proc/self/status; cat /etc/shadow; ls /root; true"
    )
    _submit(machine.bob, "who", script)
    machine.bob.run("wait", "who", "--timeout", "120")
    log = machine.bob.run("logs", "who")
    assert f"uid={BOB.uid}(bob) gid={BOB.gid}(bob) groups={BOB.gid}(bob),{VISION}(vision)" in log
    assert f"HOME={machine.bob.folder} USER=bob PWD={machine.bob.folder} TOKEN=\n" in log
    assert "NoNewPrivs:\t1" in log
    assert re.findall(r"Cap(?:Eff|Bnd):\s+(\w+)", log) == ["0" * 16] * 2
    assert log.count("Permission denied") == 2, log
    assert (machine.bob.folder / "mine").stat().st_uid == BOB.uid


def test_what_root_submits_into_somebodys_namespace_runs_as_them(machine: Machine) -> None:
    look = job("guest", shell("id; cat /etc/shadow; true"))
    look["metadata"]["annotations"] = {"trainyard.dev/working-dir": str(machine.alice.folder)}
    machine.root.run("submit", "-n", "alice", "-f", machine.root.manifest("m.yaml", look))
    machine.alice.run("wait", "guest", "--timeout", "120")
    log = machine.root.run("logs", "-n", "alice", "guest")
    assert f"uid={ALICE.uid}(alice) gid={ALICE.gid}(alice)" in log
    assert "Permission denied" in log
    machine.alice.run("delete", "guest", "--wait")


def test_nothing_runs_where_the_owner_of_a_namespace_cannot_be_read(machine: Machine) -> None:
    """It would run as root."""
    config = machine.root.run("kubeconfig").strip()

    def kubectl(*arguments: str) -> None:
        command = [
            kubectl_path(oldest_and_newest_kubectl()[-1]),
            "--kubeconfig",
            config,
            *arguments,
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    kubectl("create", "namespace", "damaged")
    kubectl("annotate", "namespace", "damaged", "trainyard.dev/owner-uid=4294967295")
    manifest = machine.root.manifest("m.yaml", job("any", shell("id")))
    said = machine.root.run("submit", "-n", "damaged", "-f", manifest, code=1)
    assert "trainyard.dev/owner-uid is '4294967295', which is no user's id" in said
    assert "is forbidden" in machine.alice.run(
        "submit", "-n", "damaged", "-f", machine.alice.manifest("m.yaml", job("any")), code=1
    )
    kubectl("delete", "namespace", "damaged")


def test_a_command_in_a_replica_runs_as_its_user_too(machine: Machine) -> None:
    _submit(machine.alice, "shell", "sleep 3600")
    machine.alice.run("wait", "shell", "--for", "phase=Running", "--timeout", "120")
    assert f"uid={ALICE.uid}(alice)" in machine.alice.run("exec", "shell", "--", "id")
    machine.alice.run("delete", "shell", "--wait")


REFUSED = {
    "another user": ({"securityContext": {"runAsUser": 0}}, {}, "runAsUser"),
    "another user for all": ({}, {"securityContext": {"runAsUser": 61009}}, "runAsUser"),
    "a group of others": ({}, {"securityContext": {"fsGroup": 61009}}, "in the groups"),
    "privileges": ({"securityContext": {"privileged": True}}, {}, "privileged"),
    "capabilities": ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, {}, "add"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nobody_becomes_somebody_else_by_a_manifest(machine: Machine, case: str) -> None:
    container, pod, reason = REFUSED[case]
    manifest = job("climber", shell("id"), container=container, pod=pod)
    said = machine.bob.run("submit", "-f", machine.bob.manifest("m.yaml", manifest), code=1)
    assert reason in said
    assert "spec.replicaSpecs[0].template.spec" in said


def test_working_folders_and_claims_are_reached_with_ones_own_rights(machine: Machine) -> None:
    """Whatever a manifest says of where it works: the folders of others stay theirs."""
    (machine.alice.folder / "private").write_text("of Alice")
    climber = job(
        "climber", shell(f"ls {machine.alice.folder}; cat {machine.alice.folder}/private")
    )
    climber["metadata"]["annotations"] = {"trainyard.dev/working-dir": str(machine.alice.folder)}
    machine.bob.run("submit", "-f", machine.bob.manifest("m.yaml", climber))
    machine.bob.run("wait", "climber", "--for", "phase=Failed", "--timeout", "120")
    assert "of Alice" not in machine.bob.run("logs", "climber", code=None)
    machine.bob.run("delete", "climber", "--wait")
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    claim["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/data"}]}
    writer = job("writer", shell("id > /data/who"), pod={"volumes": volumes}, container=mount)
    machine.bob.run("submit", "-f", machine.bob.manifest("m.yaml", claim, writer))
    machine.bob.run("wait", "writer", "--timeout", "120")
    kept = machine.folder / "cluster/volumes/bob/data/who"
    assert kept.stat().st_uid == BOB.uid


def test_a_run_on_the_cluster_of_root_leaves_no_job(machine: Machine) -> None:
    script = shell("id -un; sh -c 'echo from $$' >&2")
    manifest = machine.bob.manifest("r.yaml", job("ran", script))
    said = machine.bob.run("run", "-f", manifest)
    assert "bob" in said
    assert "PyTorchTrainingJob ran: Succeeded" in said
    assert "ran" not in machine.bob.run("list")
    assert "yours is made by trainyard kubeconfig" in machine.bob.run("status")
    assert "root's, who lets others use its cluster" in machine.bob.run("doctor", code=None)


def test_ones_own_logs_outlive_their_pods_and_those_of_others_stay_closed(machine: Machine) -> None:
    script = "test -e again && { echo second; exit; }; touch again; echo first; exit 1"
    for line in (machine.bob, machine.alice):
        manifest = job("twice", shell(script), policy="OnFailure", runPolicy={"backoffLimit": 2})
        line.run("submit", "-f", line.manifest("t.yaml", manifest))
        line.run("wait", "twice", "--timeout", "120")
    assert "first" in machine.bob.run("logs", "twice", "--previous")
    refused = machine.bob.run("logs", "twice", "--previous", "-n", "alice", code=1)
    assert (
        "cannot read the logs of PyTorchTrainingJob alice/twice: they are another user's" in refused
    )


def _host_path(path: str, script: str) -> dict[str, Any]:
    volumes = [{"name": "v", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/shown"}]}
    return job("shown", shell(script), pod={"volumes": volumes}, container=mounts)


def test_folders_of_the_host_are_those_that_the_user_can_reach(machine: Machine) -> None:

    def _is_denied() -> bool:
        told = [machine.bob.run(command, "shown") for command in ("events", "explain")]
        return all("Permission denied" in text for text in told)

    (machine.alice.folder / "open").mkdir(mode=0o755)  # in a closed one
    (machine.alice.folder / "open" / "word").write_text("of Alice")
    for path in (machine.alice.folder / "open", machine.alice.folder / "made"):
        look = _host_path(str(path), "cat /shown/word")
        machine.bob.run("submit", "-f", machine.bob.manifest("m.yaml", look))
        until(_is_denied, "the pod waits and says so")
        machine.bob.run("delete", "shown", "--wait")
    assert not (machine.alice.folder / "made").exists()
    write = _host_path(str(machine.bob.folder / "new"), "touch /shown/written")
    machine.bob.run("submit", "-f", machine.bob.manifest("m.yaml", write))
    machine.bob.run("wait", "shown", "--timeout", "120")
    for path in ("new", "new/written"):
        assert (machine.bob.folder / path).stat().st_uid == BOB.uid
    machine.bob.run("delete", "shown", "--wait")


def test_what_is_made_for_a_pod_is_its_users(machine: Machine) -> None:
    """Files of a Secret that only their owner may read; a subPath of a claim."""
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "only"}}
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "sub"},
    }
    claim["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    pod = {
        "volumes": [
            {"name": "s", "secret": {"secretName": "only", "defaultMode": 0o400}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "sub"}},
            {"name": "e", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "p", "emptyDir": {}},
        ]
    }
    mounts = [
        {"name": "s", "mountPath": "/secret"},
        {"name": "c", "mountPath": "/data", "subPath": "a/b"},
        {"name": "e", "mountPath": "/fast"},
        {"name": "p", "mountPath": "/plain", "subPath": "sub"},
    ]
    script = "cat /secret/word && touch /data/kept /fast/gone /plain/gone && echo done"
    made = job("files", shell(script), pod=pod, container={"volumeMounts": mounts})
    objects = (secret | {"stringData": {"word": "read"}}, claim, made)
    machine.bob.run("submit", "-f", machine.bob.manifest("m.yaml", *objects))
    machine.bob.run("wait", "files", "--timeout", "120")
    assert "read" in machine.bob.run("logs", "files")
    folder = machine.folder / "cluster/volumes/bob/sub"
    for path in ("", "a", "a/b", "a/b/kept"):
        assert (folder / path).stat().st_uid == BOB.uid


def _on_claim(name: str, script: str) -> Object:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/data", "subPath": "made"}]}
    return job("claims", shell(script), pod={"volumes": volumes}, container=mounts)


@pytest.mark.parametrize(("who", "claim"), [("alice", "shared"), ("bob", "closed")])
def test_a_folder_that_root_named_for_a_claim_is_not_shown_to_who_cannot_reach_it(
    machine: Machine, who: str, claim: str
) -> None:
    line: CommandLine = getattr(machine, who)
    line.run("submit", "-f", line.manifest("m.yaml", _on_claim(claim, "ls /data")))
    reason = "Permission denied" if claim == "shared" else f"not a folder that {who} can reach"
    until(lambda: reason in line.run("events", "claims"), "the pod does not start and says so")
    line.run("delete", "claims", "--wait")


def test_a_folder_of_a_group_is_shared_by_its_users(machine: Machine) -> None:
    manifest = machine.bob.manifest("m.yaml", _on_claim("shared", "touch /data/written"))
    machine.bob.run("submit", "-f", manifest)
    machine.bob.run("wait", "claims", "--timeout", "120")
    made = machine.folder / "shared" / "made"
    assert (made.stat().st_uid, made.stat().st_gid) == (BOB.uid, VISION)
    assert (made / "written").stat().st_uid == BOB.uid
    machine.bob.run("delete", "claims", "--wait")


def test_mount_points_are_made_with_the_rights_of_who_names_them(machine: Machine) -> None:
    """Else a mount point below a folder that one may only look into would be made by root."""
    looked_at = machine.folder / "looked-at"
    looked_at.mkdir(mode=0o755)
    (machine.bob.folder / "below").mkdir()
    os.chown(machine.bob.folder / "below", BOB.uid, BOB.gid)
    volumes = [
        {"name": "host", "hostPath": {"path": str(looked_at)}},
        {"name": "mine", "hostPath": {"path": str(machine.bob.folder / "below")}},
        {"name": "empty", "emptyDir": {}},
    ]
    cases: dict[str, Object] = {
        "folder": {"volumeMounts": [{"name": "empty", "mountPath": "/host/made"}]},
        "message": {"terminationMessagePath": "/host/made"},
        "work": {"workingDir": "/host/made"},
        "link": {"volumeMounts": [{"name": "empty", "mountPath": "/mine/link/made"}]},
        "fine": {"volumeMounts": [{"name": "empty", "mountPath": "/mine/made"}]},
    }
    (machine.bob.folder / "below" / "link").symlink_to("/host")
    always = [{"name": name, "mountPath": f"/{name}"} for name in ("host", "mine")]
    for name, container in cases.items():
        container["volumeMounts"] = always + container.get("volumeMounts", [])
        made = job(name, shell("true"), pod={"volumes": volumes}, container=container)
        machine.bob.run("submit", "-f", machine.bob.manifest(f"{name}.yaml", made))
        phase = "Succeeded" if name in ("fine", "message") else "Failed"  # a volume hides it
        machine.bob.run("wait", name, "--for", f"phase={phase}", "--timeout", "120")
        if phase == "Failed":
            assert "may not do that with /" in machine.bob.run("explain", name), name
        machine.bob.run("delete", name, "--wait")
    assert not list(looked_at.iterdir())
    assert (machine.bob.folder / "below" / "made").stat().st_uid == BOB.uid
