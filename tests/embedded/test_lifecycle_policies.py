"""Policies of ours under `runPolicy`, with real processes."""

from __future__ import annotations

from tests.embedded.command_line import Object, shell, until
from tests.embedded.lifecycle_yard import (
    START_SECONDS,
    Yard,
    condition,
    ends_of,
    generic,
    pytorch,
    replicas,
    shared_yard,
    template,
)

cluster = shared_yard("policies")


def test_a_job_that_needs_all_its_replicas_waits_for_the_last(cluster: Yard) -> None:
    pods = template(shell("[ $RANK = 0 ] || until [ -e /data/last ]; do sleep 0.05; done"))
    cluster.submit(pytorch("all", pods, replicas=2, runPolicy={"successPolicy": "AllReplicas"}))
    told = {"worker-0": "Succeeded", "worker-1": "Running"}
    cluster.await_pods("all", told, START_SECONDS)
    status = cluster.await_phase("all", "Running")
    assert condition(status, "Completed")["status"] == "False"
    cluster.file("last").touch()
    cluster.end("all", "Succeeded")
    assert set(cluster.pod_phases("all").values()) == {"Succeeded"}


def _ends_with(name: str, *codes: int) -> Object:
    """A container that ends with these codes, one each time it runs, and then with 0."""
    cases = " ".join(f"{i}) exit {code};;" for i, code in enumerate(codes, 1))
    return template(shell(f"echo x >> /data/{name}; case $(wc -l < /data/{name}) in {cases} esac"))


def _rule(action: str, *codes: int) -> Object:
    return {"action": action, "onExitCodes": {"operator": "In", "values": list(codes)}}


def test_a_failure_means_what_the_rules_say_of_its_exit_code(cluster: Yard) -> None:
    rules = {"podFailurePolicy": {"rules": [_rule("FailJob", 7, 42), _rule("Ignore", 43)]}}
    again = {"podFailurePolicy": {"rules": [_rule("Restart", 75)]}}
    once = replicas("worker", 1, _ends_with("restart", 75, 3), policy="Never", limit=1)
    cluster.submit(
        pytorch("fatal", _ends_with("fatal", 1, 42), runPolicy=rules),
        pytorch(
            "ignore",
            _ends_with("ignore", 43, 43),
            policy="Never",
            runPolicy={**rules, "backoffLimit": 0},
        ),
        generic("restart", once, runPolicy=again),
    )
    fatal = cluster.end("fatal", "Failed")
    assert ends_of(fatal) == [("worker-0", 1), ("worker-0", 42)]
    assert fatal["backoffCount"] == 1
    assert condition(fatal, "Failed")["reason"] == "PodFailurePolicy"
    said = "podFailurePolicy.rules[0] (exit code 42) fails the job"
    assert condition(fatal, "Failed")["message"].endswith(said)
    assert said in cluster.run("explain", "fatal")
    assert said in cluster.run("show", "fatal")
    ignored = cluster.end("ignore", "Succeeded")
    assert ends_of(ignored) == [("worker-0", 43), ("worker-0", 43), ("", None)]
    assert ignored["backoffCount"] == 0
    restarted = cluster.end("restart", "Failed")
    assert ends_of(restarted) == [("worker-0", 75), ("worker-0", 3)]
    assert restarted["restartCount"] == 1


def test_a_parameter_server_restarts_alone_and_workers_together(cluster: Yard) -> None:
    """First worker-1 fails, then ps-0, each once the others run; the job ends with rank 0."""
    wait = "until [ -e /data/mixed-{until} ]; do sleep 0.05; done"
    worker = shell(
        f"echo $RANK >> /data/mixed; [ $RANK = 1 ] && [ ! -e /data/mixed-again ] && "
        f"{{ {wait.format(until='fail')}; touch /data/mixed-again; exit 3; }}; "
        + wait.format(until="end")
    )
    server = shell(
        f"[ -e /data/mixed-ps ] || {{ {wait.format(until='ps-fail')}; "
        "touch /data/mixed-ps; exit 4; }; " + wait.format(until="end")
    )
    job = pytorch("mixed", template(worker), replicas=2)
    types = job["spec"]["replicaSpecs"]
    types.append({**types[0], "type": "ps", "replicas": 1, "template": template(server)})
    types[1]["restartScope"] = "Replica"
    cluster.submit(job)
    running = {"worker-0": "Running", "worker-1": "Running", "ps-0": "Running"}
    cluster.await_pods("mixed", running, START_SECONDS)
    first = cluster.uids("mixed")
    cluster.file("mixed-fail").touch()
    until(
        lambda: len(cluster.lines("mixed")) == 4, "both workers have started again", START_SECONDS
    )
    cluster.await_pods("mixed", running, START_SECONDS)
    second = cluster.uids("mixed")
    assert {name for name in first if first[name] != second[name]} == {"worker-0", "worker-1"}
    cluster.file("mixed-ps-fail").touch()
    until(lambda: cluster.status("mixed")["backoffCount"] == 2, "ps-0 restarts", START_SECONDS)
    cluster.await_pods("mixed", running, START_SECONDS)
    third = cluster.uids("mixed")
    assert {name for name in second if second[name] != third[name]} == {"ps-0"}
    cluster.file("mixed-end").touch()
    status = cluster.end("mixed", "Succeeded")
    assert ends_of(status) == [("worker-1", 3), ("ps-0", 4), ("", None)]
