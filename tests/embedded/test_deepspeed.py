"""DeepSpeedJob with the real deepspeed, pdsh and sshd: what the ranks see, in every form."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.embedded.deepspeed_job import KIND, MEET, SHOW, TRICKY, shown, spec, worker
from tests.embedded.launching import (
    NAMESPACE,
    Jobs,
    jobs_with,
    require_programs,
    running_jobs,
    sshd_processes,
)
from trainyard.kube.resources import CONFIG_MAPS, PODS, SECRETS

ARGUMENTS = ["plain", "with space", "quo'te\"d", "$HOME", "%h", "", "a*b;c|d", "--x=é", "--", "\\"]
VARIABLES = ("LITERAL", "TRICKY", "FROM_SECRET", "FROM_ENV_FROM")


jobs = jobs_with("deepspeed", "pdsh", "sshd", "ssh")


async def with_variables(jobs: Jobs) -> dict[str, object]:
    """A worker's container with one variable of each origin."""
    secret = {"metadata": {"name": "given"}, "data": {"key": encoded("from the secret")}}
    config = {"metadata": {"name": "given"}, "data": {"FROM_ENV_FROM": "from the config map"}}
    await jobs.client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", **secret}, NAMESPACE)
    body = {"apiVersion": "v1", "kind": "ConfigMap", **config}
    await jobs.client.create(CONFIG_MAPS, body, NAMESPACE)
    reference = {"secretKeyRef": {"name": "given", "key": "key"}}
    return {
        "env": [
            {"name": "LITERAL", "value": "literal"},
            {"name": "TRICKY", "value": TRICKY},
            {"name": "FROM_SECRET", "valueFrom": reference},
        ],
        "envFrom": [{"configMapRef": {"name": "given"}}],
    }


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_every_rank_sees_arguments_environment_and_its_place(jobs: Jobs) -> None:
    """Two workers with two slots: four ranks on two hosts, nothing changed on the way."""
    jobs.script("show.py", SHOW)
    template = worker(**await with_variables(jobs))
    run = {"python": ["show.py", *ARGUMENTS]}
    await jobs.submit(KIND, "dj", spec(run, slots=2, template=template))
    await jobs.succeed(KIND, "dj")
    ranks = await shown(jobs)
    assert [rank["RANK"] for rank in ranks] == ["0", "1", "2", "3"]
    assert {rank["WORLD_SIZE"] for rank in ranks} == {"4"}
    hosts = [rank["host"] for rank in ranks]
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]
    for rank in ranks:
        assert rank["argv"] == [f"--local_rank={rank['LOCAL_RANK']}", *ARGUMENTS]
        assert [rank[name] for name in VARIABLES] == [
            "literal",
            TRICKY,
            "from the secret",
            "from the config map",
        ]
    await jobs.until(KIND, "dj", lambda _: not sshd_processes(jobs))


async def test_a_module_without_local_rank_and_without_the_jobs_variables(jobs: Jobs) -> None:
    """`localRank: false` and `disableCustomEnv`, on two workers."""
    jobs.script("shown_module.py", SHOW)
    template = worker(**await with_variables(jobs))
    config = {"localRank": False}
    run = {"module": ["shown_module", "with space"]}
    job = spec(run, template=template, config=config, disableCustomEnv=True)
    await jobs.submit(KIND, "dj", job)
    await jobs.succeed(KIND, "dj")
    ranks = await shown(jobs)
    assert [rank["argv"] for rank in ranks] == [["with space"]] * 2
    assert {rank[name] for rank in ranks for name in VARIABLES} == {None}


async def test_one_worker_needs_no_pdsh_and_runs_any_program(jobs: Jobs) -> None:
    """`exec`, arguments verbatim and the variables, launched without a remote shell."""
    jobs.script("show.py", SHOW)
    program = ["/usr/bin/env", "python3", "show.py", *ARGUMENTS]
    template = worker(**await with_variables(jobs))
    config = {"localRank": False}
    job = spec({"exec": program}, replicas=1, slots=2, template=template, config=config)
    await jobs.submit(KIND, "dj", job)
    await jobs.succeed(KIND, "dj")
    ranks = await shown(jobs)
    assert [rank["argv"] for rank in ranks] == [ARGUMENTS] * 2
    assert {rank["TRICKY"] for rank in ranks} == {TRICKY}


async def test_one_worker_without_the_jobs_variables(jobs: Jobs) -> None:
    """`disableCustomEnv` holds where the ranks are children of the launcher, too."""
    jobs.script("show.py", SHOW)
    template = worker(**await with_variables(jobs))
    job = spec({"python": ["show.py"]}, replicas=1, template=template, disableCustomEnv=True)
    await jobs.submit(KIND, "dj", job)
    await jobs.succeed(KIND, "dj")
    [rank] = await shown(jobs)
    assert {rank[name] for name in VARIABLES} == {None}


async def test_a_custom_command_launches_by_hand(jobs: Jobs) -> None:
    """It runs in a shell, when all workers answer, with hostfile and ssh in place."""
    jobs.script("show.py", SHOW)
    command = (
        "test $(wc -l </job/hostfile) = 2 && ssh worker-1 hostname -I && getent hosts worker-1 && "
        "deepspeed --include worker-0@worker-1:0 --hostfile /t9k/hostfile \\\n show.py x"
    )
    job = spec(config={"customCommand": command}, template=worker(**await with_variables(jobs)))
    await jobs.submit(KIND, "dj", job)
    await jobs.succeed(KIND, "dj")
    ranks = await shown(jobs)
    assert [rank["argv"][1:] for rank in ranks] == [["x"]] * 2
    assert {rank["TRICKY"] for rank in ranks} == {TRICKY}


@pytest.mark.parametrize(
    ("options", "slots", "places"),
    [
        (["--include", "worker-1"], 1, [("worker-1", "0")]),
        (["--exclude", "worker-0:0"], 2, [("worker-0", "0"), ("worker-1", "0"), ("worker-1", "1")]),
    ],
)
async def test_hosts_and_slots_are_chosen_by_name(
    jobs: Jobs, options: list[str], slots: int, places: list[tuple[str, str]]
) -> None:
    """Rank 0 is on the first host that is left, and the others find it there."""
    jobs.script("show.py", SHOW + MEET)
    job = spec({"python": ["show.py"]}, slots=slots, config={"otherArgs": options})
    await jobs.submit(KIND, "dj", job)
    await jobs.succeed(KIND, "dj")
    ranks = await shown(jobs)
    assert sorted((rank["host"], rank["LOCAL_RANK"]) for rank in ranks) == places
    assert ranks[0]["host"] == places[0][0]


async def test_a_custom_command_ends_the_job_with_its_own_code(jobs: Jobs) -> None:
    await jobs.submit(KIND, "dj", spec(config={"customCommand": "exit 42"}, replicas=1))
    status = await jobs.fail(KIND, "dj")
    assert status["tasks"][0]["replicas"][0]["containers"][0]["exitCode"] == 42


async def test_debug_mode_is_ready_for_a_launch_by_hand(jobs: Jobs) -> None:
    """sshd serves on every worker, hostfile and keys are in place, nothing trains."""
    job = spec(runMode={"debug": {"enabled": True}})
    job.pop("config")
    await jobs.submit(KIND, "dj", job)
    await jobs.until(KIND, "dj", lambda job: job.get("status", {}).get("phase") == "Running")
    await jobs.until(KIND, "dj", lambda _: len(sshd_processes(jobs)) == 2)
    pod = await jobs.client.get(PODS, min(await jobs.pods()), NAMESPACE)
    output = await jobs.shell(pod, "ssh worker-1 hostname; cat /t9k/hostfile")
    assert output.splitlines() == ["worker-1", "worker-0 slots=1", "worker-1 slots=1"]


async def test_it_runs_without_namespaces(tmp_path: Path) -> None:
    """Plain processes: two workers on two loopback addresses of this machine."""
    require_programs("deepspeed", "pdsh", "sshd", "ssh")
    async with running_jobs(tmp_path, isolation="plain") as jobs:
        jobs.script("show.py", SHOW)
        template = worker(**await with_variables(jobs))
        await jobs.submit(KIND, "dj", spec({"python": ["show.py", *ARGUMENTS]}, template=template))
        await jobs.succeed(KIND, "dj")
        ranks = await shown(jobs)
        assert [rank["argv"][1:] for rank in ranks] == [ARGUMENTS] * 2
        assert {rank["TRICKY"] for rank in ranks} == {TRICKY}
        await jobs.until(KIND, "dj", lambda _: not sshd_processes(jobs))


async def test_the_example_learns(jobs: Jobs) -> None:
    """ZeRO over two workers: the loss on held-out text falls below that of a uniform guess."""
    await jobs.submit_example("deepspeed-zero")
    await jobs.succeed(KIND, "transformer")
    log = await jobs.logs()
    before, after = (loss_in(log, when) for when in ("before", "after"))
    assert before > 3.9
    assert after < 2.8


def loss_in(log: str, when: str) -> float:
    """The held-out loss that rank 0 printed."""
    return float(log.partition(f"held-out loss {when}: ")[2].split()[0])


FILES = """\
set -e
for host in $(cut -d' ' -f1 $TRAINYARD_HOSTFILE); do
    echo "from $host" >sent
    scp -q sent $host:/tmp/copied
    echo "put sent /tmp/put" | sftp -q -b - $host >sftp.log
    ssh $host 'cat /tmp/copied /tmp/put'
done
"""


async def test_a_long_custom_command_reaches_files_of_other_workers(jobs: Jobs) -> None:
    """Longer than the kernel's limit of one argument; by scp and sftp."""
    require_programs("scp", "sftp")
    script = FILES + "# padding\n" * 16_000
    await jobs.submit(KIND, "dj", spec(config={"customCommand": script}))
    await jobs.succeed(KIND, "dj")
    said = [line for line in (await jobs.logs()).splitlines() if line.startswith("from ")]
    assert said == ["from worker-0", "from worker-0", "from worker-1", "from worker-1"]


SYNCHRONISE = """\
set -e
mkdir -p sent/deep && echo one >"sent/with space" && echo two >sent/deep/file
for host in $(cut -d' ' -f1 $TRAINYARD_HOSTFILE); do
    rsync -a --checksum sent/ $host:/tmp/copied/
    echo three >>sent/deep/file
    rsync -a --checksum --delete sent/ $host:/tmp/copied/
    rsync -a $host:/tmp/copied/ back-$host/
    diff -r sent back-$host
    ssh $host 'echo "$(hostname) has $(find /tmp/copied -type f | wc -l)"'
done
"""


async def test_files_are_synchronised_with_other_workers(jobs: Jobs) -> None:
    """By rsync, which finds our ssh, to and from each."""
    require_programs("rsync")
    await jobs.submit(KIND, "dj", spec(config={"customCommand": SYNCHRONISE}))
    await jobs.succeed(KIND, "dj")
    said = [line for line in (await jobs.logs()).splitlines() if " has " in line]
    assert said == ["worker-0 has 2", "worker-1 has 2"]


async def test_debug_mode_serves_ssh_whatever_its_command_is(jobs: Jobs) -> None:
    """An sshd with options of its own, and beside another command, as of a ColossalAIJob."""
    command = ["/usr/sbin/sshd", "-D", "-e", "-o", "MaxAuthTries=3"]
    debug = {"enabled": True, "replicaSpecs": [{"type": "worker", "command": command}]}
    await jobs.submit(KIND, "dj", spec({"python": ["x.py"]}, runMode={"debug": debug}))
    colossalai = {
        "torchConfig": {"script": ["x.py"]},
        "replicaSpecs": [{"type": "worker", "replicas": 1, "template": worker()}],
        "runMode": {"debug": {"enabled": True}},
    }
    await jobs.submit("ColossalAIJob", "cj", colossalai)
    await jobs.until(KIND, "dj", lambda job: job.get("status", {}).get("phase") == "Running")
    await jobs.until(
        "ColossalAIJob", "cj", lambda job: job.get("status", {}).get("phase") == "Running"
    )
    await jobs.until(KIND, "dj", lambda _: len(sshd_processes(jobs)) == 4)
    pods = await jobs.pods()
    for pod in (min(pods), next(name for name in pods if name.endswith("-launcher"))):
        output = await jobs.shell(
            pods[pod],
            "for i in 1 2 3 4 5 6 7 8 9; do ssh worker-0 echo here && break; sleep 0.3; done",
        )
        assert "here" in output.splitlines()
