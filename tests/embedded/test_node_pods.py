"""Pods on the node, with real processes: what a container sees, and how its end is told."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.node_cluster import (
    Cluster,
    are_limits_enforced,
    cluster,
    eventually,
    processes_with,
)
from trainyard.podruntime.network.netlink import BRIDGE_ADDRESS
from trainyard.schema.errors import TrainyardError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
pytestmark = needs_root


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Cluster]:
    (tmp_path / "work").mkdir()
    async with cluster(tmp_path / "state", working_dir=str(tmp_path / "work")) as running:
        yield running


async def test_a_pod_goes_from_pending_over_running_to_succeeded(node: Cluster) -> None:
    subscription = node.registry.subscribe("pods")
    await node.run("job-0", ["sh", "-c", "sleep 0.2"])
    phases = [event.object["status"]["phase"] for event in subscription.pending()]
    assert list(dict.fromkeys(phases)) == ["Pending", "Running", "Succeeded"]


@pytest.mark.parametrize(
    ("command", "code", "reason", "signal"),
    [
        (["true"], 0, "Completed", None),
        (["sh", "-c", "exit 3"], 3, "Error", None),
        (["sh", "-c", "kill -9 $$$$"], 137, "Error", 9),
        ([sys.executable, "-c", "import signal,os; os.abort()"], 134, "Error", 6),
        (["no-such-command"], 127, "ContainerCannotRun", None),
        (["/etc/hostname"], 126, "ContainerCannotRun", None),
    ],
    ids=["zero", "three", "own-sigkill", "abort", "not-found", "not-executable"],
)
async def test_exit_codes_and_reasons(
    node: Cluster, command: list[str], code: int, reason: str, signal: int | None
) -> None:
    pod = await node.run("job-0", command)
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (code, reason), ended
    assert ended.get("signal") == signal


async def test_a_command_that_is_not_found_is_named_with_the_path_searched(node: Cluster) -> None:
    pod = await node.run("job-0", ["no-such-command"])
    message = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    assert message.startswith("command not found: no-such-command in PATH=/")


async def test_neither_command_nor_args_is_refused_with_the_fix(node: Cluster) -> None:
    await node.create("job-0")
    pod = await node.phase("job-0", "Failed")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["reason"] == "ContainerCannotRun"
    assert "set command or args" in ended["message"]


async def test_args_alone_are_run(node: Cluster) -> None:
    await node.create("job-0", container={"args": ["echo", "from args"]})
    await node.phase("job-0", "Succeeded")
    assert await node.log("job-0") == "from args\n"


async def test_variables_expand_in_command_and_args(node: Cluster) -> None:
    container = {
        "command": ["echo", "$(A)", "$$(A)", "$(MISSING)"],
        "env": [{"name": "A", "value": "one"}, {"name": "B", "value": "$(A)-two"}],
        "args": ["$(B)"],
    }
    await node.create("job-0", container=container)
    await node.phase("job-0", "Succeeded")
    assert await node.log("job-0") == "one $(A) $(MISSING) one-two\n"


async def test_pods_of_a_job_reach_each_other_by_bare_and_qualified_name(node: Cluster) -> None:
    serve = "import socket;s=socket.create_server(('',9000));c,_=s.accept();c.sendall(b'hi')"
    ask = (
        "import socket,time\n"
        "for name in ('j-0','j-0.net','j-0.net.default.svc.cluster.local'):\n"
        "    print(name, socket.gethostbyname(name))\n"
        "print(socket.getnameinfo(('%s',1),0)[0] % ())\n"
        "while True:\n"
        "    try: print(socket.create_connection(('j-0',9000)).recv(9)); break\n"
        "    except OSError: time.sleep(0.01)\n"
    )
    place = {"subdomain": "net"}
    await node.create("j-0", [sys.executable, "-c", serve], hostname="j-0", **place)
    server = await node.phase("j-0", "Running")
    address = server["status"]["podIP"]
    ask = ask.replace("'%s'", repr(address)).replace(" % ()", "")
    await node.run("j-1", [sys.executable, "-c", ask], hostname="j-1", **place)
    lines = (await node.log("j-1")).splitlines()
    assert lines == [
        f"j-0 {address}",
        f"j-0.net {address}",
        f"j-0.net.default.svc.cluster.local {address}",
        "j-0.net.default.svc.cluster.local",
        "b'hi'",
    ]


async def test_a_running_pod_finds_a_peer_that_is_started_later(node: Cluster) -> None:
    wait = "until getent hosts late; do sleep 0.01; done"
    await node.create("early", ["sh", "-c", wait], subdomain="net", hostname="early")
    await node.phase("early", "Running")
    await node.create("late", ["sleep", "30"], subdomain="net", hostname="late")
    await node.phase("early", "Succeeded")


async def test_names_of_the_cluster_that_are_unknown_wait_for_no_name_server(node: Cluster) -> None:
    script = (
        "import socket\n"
        "for name in ('nowhere', 'nowhere.net.default.svc.cluster.local'):\n"
        "    try: socket.getaddrinfo(name, 1)\n"
        "    except socket.gaierror as error: print(error.errno == socket.EAI_NONAME)"
    )
    await node.run("job-0", [sys.executable, "-c", script])
    assert await node.log("job-0") == "True\nTrue\n"


async def test_writes_persist_in_the_working_folder_and_nowhere_else(
    node: Cluster, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    outside = tmp_path / "outside"
    outside.mkdir()
    script = f"""
        echo kept > result && test "$PWD" = {work}
        echo lost > {outside}/file && echo lost > /usr/lost && echo lost > ~/lost
        cat {outside}/file
    """
    assert await node.shell("job-0", script) == "lost\n"
    assert (work / "result").read_text() == "kept\n"
    assert not list(outside.iterdir())
    assert not Path("/usr/lost").exists()
    assert not Path("~/lost").expanduser().exists()


async def test_a_missing_working_directory_is_made_in_the_layer(node: Cluster) -> None:
    text = await node.shell("job-0", "pwd", container={"workingDir": "/no/such/place"})
    assert text == "/no/such/place\n"
    assert not Path("/no").exists()


async def test_the_annotation_names_the_working_folder(node: Cluster, tmp_path: Path) -> None:
    annotations = {"trainyard.dev/working-dir": str(tmp_path)}
    text = await node.shell("job-0", "pwd", metadata={"annotations": annotations})
    assert text == f"{tmp_path}\n"


async def test_a_pod_has_its_own_host_name_processes_shm_and_loopback(node: Cluster) -> None:
    script = "hostname; ls /proc | grep -c '^[0-9]'; ls /dev/shm | wc -l; ls /sys/class/net | wc -l"
    text = await node.shell("job-0", script, hostname="its-own")
    assert text.split()[0] == "its-own"
    assert int(text.split()[1]) < 10
    assert text.split()[2] == "0"


async def test_the_file_of_the_host_name_agrees_with_it(node: Cluster) -> None:
    script = "hostname; cat /etc/hostname"
    assert await node.shell("job-0", script, hostname="its-own") == "its-own\nits-own\n"
    assert await node.shell("hostname", script) == "hostname\nhostname\n"


async def test_what_a_pod_may_not_change_on_the_host(node: Cluster) -> None:
    script = """
        echo 1 > /proc/sys/kernel/panic && echo changed
        mount -t tmpfs tmpfs /mnt && echo mounted
        hostname other-name && echo renamed
        mkdir /sys/fs/cgroup/x && echo cgroup
        true
    """
    assert "ed\n" not in (await node.shell("job-0", f"({script}) 2>/dev/null"))


async def test_read_only_root_and_user(node: Cluster) -> None:
    context = {"readOnlyRootFilesystem": True, "runAsUser": 4242, "runAsGroup": 4243}
    script = "id -u; id -g; id -G; touch /tmp/x /var/x || echo refused; touch /v/x && echo allowed"
    text = await node.shell(
        "job-0",
        script + "; stat -c %a /v",
        container={
            "securityContext": context,
            "workingDir": "/",
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        },
        volumes=[{"name": "v", "emptyDir": {}}],
        securityContext={"fsGroup": 777},
    )
    assert text.splitlines()[:3] == ["4242", "4243", "4243 777"]
    assert "refused\nallowed\n" in text


async def test_standard_output_and_error_keep_their_order(node: Cluster) -> None:
    script = "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done"
    expected = "".join(f"out {i}\nerr {i}\n" for i in range(1, 6))
    assert await node.shell("job-0", script) == expected


async def test_logs_by_tail_limit_and_time_with_a_partial_last_line(node: Cluster) -> None:
    await node.shell("job-0", "seq 1000; printf partial")
    assert (await node.log("job-0", tail=2)) == "1000\npartial"
    assert (await node.log("job-0", limit=4)) == "1\n2\n"
    stamped = (await node.log("job-0", timestamps=True, tail=1)).split(" ")
    assert stamped[1] == "partial"
    assert stamped[0].endswith("Z")


async def test_following_a_log_ends_with_the_container(node: Cluster) -> None:
    await node.create("job-0", ["sh", "-c", "echo first; sleep 0.3; echo last"])
    await node.phase("job-0", "Running")
    assert await node.log("job-0", follow=True) == "first\nlast\n"


async def test_the_last_lines_become_the_termination_message(node: Cluster) -> None:
    container = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    pod = await node.run("a", ["sh", "-c", "echo reason >&2; exit 1"], container=container)
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["message"] == "reason"
    pod = await node.run("b", ["sh", "-c", "echo written > /dev/termination-log"])
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["message"] == "written\n"


async def test_of_a_long_termination_message_the_end_is_kept(node: Cluster) -> None:
    """As by the kubelet: 4 KiB from the end of the file; of these, as much from the beginning as a
    container of so many may have, 12 KiB a pod."""
    write = ["sh", "-c", "(echo begins; yes x | head -3000; echo ends) > /dev/termination-log"]
    pod = await node.run("a", write)
    message = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    assert (len(message), message[-5:]) == (4096, "ends\n")
    init = [{"name": f"i{number}", "command": ["true"]} for number in range(5)]
    pod = await node.run("b", write, initContainers=init)
    message = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    assert (len(message), "ends" in message) == (2048, False)


async def test_init_containers_and_a_sidecar(node: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "work" / "order"
    init = [
        {"name": "first", "command": ["sh", "-c", f"echo first >> {log}"]},
        {
            "name": "beside",
            "restartPolicy": "Always",
            "command": ["sh", "-c", f"echo beside >> {log}; exec sleep 100"],
        },
    ]
    pod = await node.run("job-0", ["sh", "-c", f"echo main >> {log}"], initContainers=init)
    assert pod["status"]["phase"] == "Succeeded"
    lines = log.read_text().split()
    assert lines[0] == "first"
    assert sorted(lines) == ["beside", "first", "main"]
    states = {s["name"]: s["state"] for s in pod["status"]["initContainerStatuses"]}
    assert "terminated" in states["beside"]
    assert pod["status"]["initContainerStatuses"][0]["ready"]


async def test_a_failed_init_container_fails_the_pod(node: Cluster) -> None:
    init = [{"name": "first", "command": ["sh", "-c", "exit 5"]}]
    pod = await node.run("job-0", ["true"], initContainers=init)
    assert pod["status"]["phase"] == "Failed"
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 5


async def test_on_failure_restarts_and_keeps_the_previous_log(
    node: Cluster, tmp_path: Path
) -> None:
    script = f"test -e {tmp_path}/work/seen && exit 0; touch {tmp_path}/work/seen; echo no; exit 9"
    pod = await node.run("job-0", ["sh", "-c", script], restartPolicy="OnFailure")
    status = pod["status"]["containerStatuses"][0]
    assert (pod["status"]["phase"], status["restartCount"]) == ("Succeeded", 1)
    assert status["lastState"]["terminated"]["exitCode"] == 9
    assert await node.log("job-0", previous=True) == "no\n"


async def test_of_a_container_that_restarts_the_last_two_logs_are_kept(
    node: Cluster, tmp_path: Path
) -> None:
    """However often that is: as by the kubelet, none but the last and the one before."""
    script = f"cd {tmp_path}/work; echo x >> runs; n=$(wc -l < runs); echo run $n; exit $((4 - n))"
    pod = await node.run("job-0", ["sh", "-c", script], restartPolicy="OnFailure")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 3
    assert await node.log("job-0") == "run 4\n"
    assert await node.log("job-0", previous=True) == "run 3\n"
    folder = next((tmp_path / "state" / "pods").glob("default_job-0_*")) / "main"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["2.exit", "2.log", "3.exit", "3.log", "termination-log"]


async def test_deletion_lets_the_pod_end_by_itself_within_its_grace(
    node: Cluster, tmp_path: Path
) -> None:
    bye = f"echo bye > {tmp_path}/work/bye; exit 0"
    script = f"trap '{bye}' TERM; echo ready; while :; do sleep 0.05; done"
    await node.create("job-0", ["sh", "-c", script])
    await node.phase("job-0", "Running")
    await node.printed("job-0")
    await node.registry.delete("pods", "default", "job-0")
    await node.gone("job-0")
    assert (tmp_path / "work" / "bye").exists()


async def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace(node: Cluster) -> None:
    marker = uuid.uuid4().hex
    deaf = "import signal, time; signal.signal(15, lambda *_: None); print('deaf', flush=True)"
    script = f"{deaf}; time.sleep(100) # {marker}"
    await node.create("job-0", [sys.executable, "-c", script], terminationGracePeriodSeconds=1)
    await node.printed("job-0")
    assert processes_with(marker)
    await node.registry.delete("pods", "default", "job-0")
    await node.gone("job-0")
    assert not processes_with(marker)


async def test_the_deadline_ends_the_pod_and_is_named(node: Cluster) -> None:
    pod = await node.run("job-0", ["sleep", "100"], activeDeadlineSeconds=1)
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")


async def test_a_deadline_set_while_running_counts_and_leaves_the_pod_its_grace(
    node: Cluster,
) -> None:
    saves = "trap 'sleep 1; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    await node.create("job-0", ["sh", "-c", saves], terminationGracePeriodSeconds=100)
    await node.printed("job-0")

    def stop(pod: dict) -> dict:
        pod["spec"]["activeDeadlineSeconds"] = 1
        return pod

    await node.registry.update("pods", "default", "job-0", stop)
    pod = await node.phase("job-0", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert await node.log("job-0") == "ready\nsaved\n"


async def _write_status(node: Cluster, name: str, **status: str) -> None:
    """As anybody may through the subresource, once."""

    def change(pod: dict[str, Any]) -> dict[str, Any]:
        return {**pod, "status": {**pod["status"], **status}}

    await node.registry.update("pods", "default", name, change, subresource="status")


async def test_a_terminal_phase_that_somebody_else_writes_stays_and_ends_the_pod(
    node: Cluster,
) -> None:
    await node.create("job-0", ["sh", "-c", "echo $$$$; exec sleep 987654"])
    await node.phase("job-0", "Running")
    why = {"reason": "Evicted", "message": "The node was low on memory."}
    await _write_status(node, "job-0", phase="Failed", **why)

    def has_ended(pod: dict[str, Any]) -> bool:
        assert pod["status"]["phase"] == "Failed"
        return "terminated" in pod["status"]["containerStatuses"][0]["state"]

    pod = await node.until("job-0", has_ended)
    assert {key: pod["status"][key] for key in why} == why
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    assert not processes_with("987654")


async def test_a_pod_that_has_ended_does_not_run_again_because_its_status_says_so(
    node: Cluster,
) -> None:
    ended = (await node.run("job-0", ["sh", "-c", "exit 3"]))["status"]
    await eventually(lambda: not node.agent._workers)
    await _write_status(node, "job-0", phase="Running")
    pod = await node.phase("job-0", "Failed")
    assert pod["status"] == ended


async def test_exec_runs_in_the_container(node: Cluster) -> None:
    await node.create("job-0", ["sleep", "100"], hostname="inside")
    await node.phase("job-0", "Running")
    assert await node.exec("job-0", "hostname; exit 7") == (7, "inside\n")
    session = await node.agent.exec(
        node.pod("job-0"), "main", ["sh", "-c", "tty; read x; echo got $x"], stdin=True, tty=True
    )
    await session.write(b"word\n")
    text = b"".join([chunk.data async for chunk in session.output()])
    assert b"/dev/pts/" in text
    assert b"got word" in text
    assert await session.wait() == 0
    await session.close()


async def test_a_command_in_a_pod_that_is_over_is_refused(node: Cluster) -> None:
    pod = await node.run("job-0", ["true"])
    with pytest.raises(TrainyardError, match="container 'main' of pod job-0: it is not running"):
        await node.agent.exec(pod, "main", ["true"])
    with pytest.raises(TrainyardError, match="cannot connect to port 80 of pod job-0"):
        await node.agent.connect(pod, 80)


async def test_a_port_of_the_pod_is_reached_through_the_node(node: Cluster) -> None:
    serve = "import socket;s=socket.create_server(('',9000));c,_=s.accept();c.sendall(c.recv(9))"
    await node.create(
        "job-0",
        [sys.executable, "-c", serve],
        container={"readinessProbe": {"tcpSocket": {"port": 9999}, "periodSeconds": 1}},
    )
    pod = await node.phase("job-0", "Running")
    connection = None
    while connection is None:
        with contextlib.suppress(TrainyardError):  # nothing listens yet
            connection = await node.agent.connect(pod, 9000)
    await connection.write(b"echo")
    assert await connection.read(10) == b"echo"
    await connection.close()
    with pytest.raises(TrainyardError, match="cannot connect to port 9001 of pod job-0"):
        await node.agent.connect(pod, 9001)
    assert not node.pod("job-0")["status"]["containerStatuses"][0]["ready"]


async def test_probes_make_ready_and_restart(node: Cluster, tmp_path: Path) -> None:
    work = tmp_path / "work"
    probe = {"exec": {"command": ["test", "-e", "ready"]}, "periodSeconds": 1}
    live = {"exec": {"command": ["test", "!", "-e", "dead"]}, "periodSeconds": 1}
    await node.create(
        "job-0",
        ["sleep", "100"],
        container={"readinessProbe": probe, "livenessProbe": {**live, "failureThreshold": 1}},
        restartPolicy="Always",
    )
    await node.phase("job-0", "Running")
    (work / "ready").touch()
    await node.until("job-0", lambda pod: pod["status"]["containerStatuses"][0]["ready"])
    (work / "dead").touch()
    await node.until(
        "job-0", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] >= 1
    )


async def test_a_service_forwards_to_the_pod_behind_it_also_to_another_port(
    node: Cluster,
) -> None:
    service = {
        "metadata": {"name": "front"},
        "spec": {
            "selector": {"app": "x"},
            "ports": [{"port": 80, "targetPort": "web"}, {"name": "b", "port": 81}],
            "publishNotReadyAddresses": True,
        },
    }
    await node.registry.create("services", service)
    # Reads to the end before it answers, so that half-closing must come through.
    serve = (
        "import socket\n"
        "s=socket.create_server(('',8080))\n"
        "while True:\n"
        "    c,_=s.accept(); data=b''\n"
        "    while chunk:=c.recv(65536): data+=chunk\n"
        "    c.sendall(str(len(data)).encode()); c.close()\n"
    )
    ask = (
        "import socket\n"
        "c=socket.create_connection(('front.default.svc.cluster.local',80))\n"
        "c.sendall(b'x'*3000000); c.shutdown(1); print(c.recv(99))\n"
    )
    await node.create("client", [sys.executable, "-c", ask])  # starts first, on purpose
    ports = [{"name": "web", "containerPort": 8080}]
    metadata = {"labels": {"app": "x"}}
    for generation in (1, 2):
        name = f"server-{generation}"
        await node.create(
            name, [sys.executable, "-c", serve], container={"ports": ports}, metadata=metadata
        )
        await node.phase("client", "Succeeded")
        assert await node.log("client") == "b'3000000'\n"
        await node.registry.delete("pods", "default", name)
        await node.registry.delete("pods", "default", "client")
        await node.gone("client")
        await node.gone(name)
        if generation == 1:
            await node.create("client", [sys.executable, "-c", ask])


async def test_the_bridge_keeps_its_address_when_pods_come(node: Cluster) -> None:
    """Else pods that know the old one send into the void for half a minute."""
    ask = (
        "import socket\n"
        "s=socket.socket(); s.settimeout(5)\n"
        "gateway=socket.inet_ntoa(bytes.fromhex(open('/proc/net/route').read().split()[13])[::-1])\n"
        "print(s.connect_ex((gateway,9)) and open('/proc/net/arp').read().split()[12])\n"
    )
    for number in range(4):
        await node.create(f"p{number}", [sys.executable, "-c", ask])
        await node.phase(f"p{number}", "Succeeded")
        assert await node.log(f"p{number}") == f"{BRIDGE_ADDRESS}\n"


async def test_a_container_beyond_its_memory_limit_is_oom_killed(node: Cluster) -> None:
    if not are_limits_enforced():
        pytest.skip("control groups cannot be written here")
    script = "x = bytearray(200 << 20); print(len(x))"
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    pod = await node.run("job-0", [sys.executable, "-c", script], container=limits)
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    assert not list(Path("/sys/fs/cgroup").glob(f"**/trainyard/{pod['metadata']['uid']}*"))


async def test_what_is_not_honoured_is_told(node: Cluster) -> None:
    await node.run("job-0", ["true"], hostNetwork=True)
    assert node.events("NotHonoured") == ["hostNetwork: pods on this machine have their own"]


async def test_dropped_capabilities_and_no_new_privileges_hold(node: Cluster) -> None:
    if node.agent.isolation != "root":
        pytest.skip("needs root")
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
    }
    script = "grep -E 'CapEff|NoNewPrivs' /proc/self/status"
    text = await node.shell("job-0", script, container={"securityContext": context})
    assert text.split() == ["CapEff:", "0000000000000400", "NoNewPrivs:", "1"]


async def test_a_port_of_a_service_that_is_not_forwarded_is_told_to_its_owner(
    node: Cluster,
) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "job", "uid": "u"}
    await node.registry.create(
        "services",
        {
            "metadata": {"name": "s", "ownerReferences": [owner]},
            "spec": {"selector": {"a": "b"}, "ports": [{"port": 53, "protocol": "SCTP"}]},
        },
    )
    await node.run("job-0", ["true"])
    (event,) = [e for e in node.registry.list("events") if e["reason"] == "NotHonoured"]
    assert event["involvedObject"] == {**owner, "namespace": "default"}
    assert "53/SCTP is not forwarded" in event["message"]


async def test_a_program_that_the_user_may_not_get_to_names_the_folder_in_the_way(
    node: Cluster, tmp_path: Path
) -> None:
    closed = tmp_path / "closed" / "bin"
    closed.mkdir(parents=True)
    os.chmod(tmp_path / "closed", 0o700)
    (closed / "python").symlink_to(sys.executable)
    script = tmp_path / "script"
    script.write_text(f"#!{closed}/python\nprint(1)\n")
    for path in (script, tmp_path, *tmp_path.parents):
        if path != Path("/"):
            os.chmod(path, os.stat(path).st_mode | 0o111)
    security = {"runAsUser": 1000}
    container = {"command": [str(closed / "python")], "securityContext": security}
    for name, more in {
        "absolute": {},
        "by-script": {"command": [str(script)]},
        "folder": {"command": ["true"], "workingDir": str(closed)},
    }.items():
        await node.create(name, container=container | more)
        pod = await node.phase(name, "Failed")
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["reason"] == "ContainerCannotRun", ended
        assert ended["message"].endswith(f"user 1000 may not enter {tmp_path}/closed"), ended
