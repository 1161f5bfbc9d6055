"""What a GenericJob turns into."""

from __future__ import annotations

import json
from typing import Any

import kubernetes_validate
import pytest
from tests.unit.kinds.pods.jobs import container, env, job, pod, replicas, workload

from trainyard.kinds.generic.workload import Variables
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.workload import ReplicaKey, RestartPolicy, Scope, objects

PORTS = {"ports": [{"name": "grpc", "port": 2222, "targetPort": 8080}]}


def generic(*types: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return job("GenericJob", "tf", replicaSpecs=list(types) or [replicas(count=2)], **spec)


VARIABLES = Variables(
    key=ReplicaKey("worker", 1),
    replicas={"worker": 4, "ps": 1},
    hosts={ReplicaKey("worker", 0): "tf-worker-0", ReplicaKey("ps", 0): "tf-ps-0"},
    ports={"grpc": 2222},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(type)", "worker"),
        ("$(rank)", "1"),
        ("--n=$(replicas[worker])/$(replicas[ps])", "--n=4/1"),
        ("$(service.worker[0].host):$(service.port[grpc])", "tf-worker-0:2222"),
        ("$(service.ps[0].host)", "tf-ps-0"),
        ("$(HOME) $(service.worker[9].host)", "$(HOME) $(service.worker[9].host)"),
        ("$(replicas[none]) $(service.port[none])", "$(replicas[none]) $(service.port[none])"),
        ("$$(rank)", "$$(rank)"),
        ("plain $type ${rank} $(type", "plain $type ${rank} $(type"),
        ("", ""),
    ],
)
def test_variables(text: str, expected: str) -> None:
    assert VARIABLES.apply(text) == expected


def test_without_services_their_variables_are_left_alone() -> None:
    variables = Variables(ReplicaKey("worker", 0), {"worker": 1}, None, {"grpc": 1})
    text = "$(service.worker[0].host) $(service.port[grpc])"
    assert variables.apply(text) == text


def test_tf_config_is_valid_json_in_every_replica() -> None:
    tf_config = (
        '{"cluster": {"worker": ["$(service.worker[0].host):$(service.port[grpc])", '
        '"$(service.worker[1].host):$(service.port[grpc])"]}, '
        '"task": {"type": "$(type)", "index": $(rank)}}'
    )
    containers = [
        {
            "name": "tf",
            "image": "i",
            "command": ["run", "$(rank)"],
            "args": ["$(replicas[worker])"],
            "env": [{"name": "TF_CONFIG", "value": tf_config}],
        }
    ]
    described = workload(generic(replicas(count=2, containers=containers), service=PORTS))
    built = pod(described, ordinal=1)
    assert json.loads(env(built)["TF_CONFIG"]) == {
        "cluster": {"worker": ["tf-worker-0:2222", "tf-worker-1:2222"]},
        "task": {"type": "worker", "index": 1},
    }
    assert container(built)["command"] == ["run", "1"]
    assert container(built)["args"] == ["2"]


@pytest.mark.parametrize(("plain", "expected"), [(False, "tf-worker-0:2222"), (True, ":8080")])
def test_without_names_peers_connect_to_the_pod_itself(plain: bool, expected: str) -> None:
    text = "$(service.worker[0].host):$(service.port[grpc])"
    containers = [{"name": "m", "image": "i", "args": [text]}]
    described = workload(
        generic(replicas(containers=containers), service=PORTS),
        Settings.local(plain_processes=plain),
    )
    (address,) = container(pod(described))["args"]
    assert address.endswith(expected)
    assert address.startswith("127." if plain else "tf-")


def test_each_replica_has_a_service_that_selects_it_alone() -> None:
    described = workload(generic(replicas(count=2), service=PORTS))
    services = [o for o in objects(described) if o["kind"] == "Service"]
    assert [s["metadata"]["name"] for s in services] == [
        described.base,
        "tf-worker-0",
        "tf-worker-1",
    ]
    for ordinal, service in enumerate(services[1:]):
        assert "clusterIP" not in service["spec"]
        assert service["spec"]["ports"] == PORTS["ports"]
        labels = pod(described, ordinal=ordinal)["metadata"]["labels"]
        selector = service["spec"]["selector"]
        assert selector.items() <= labels.items()
        other = pod(described, ordinal=1 - ordinal)["metadata"]["labels"]
        assert not selector.items() <= other.items()


@pytest.mark.parametrize("spec", [{}, {"service": {}}, {"service": {"ports": []}}])
def test_without_ports_there_is_no_service_and_no_name(spec: dict[str, Any]) -> None:
    """As its document says: "Defaults to empty and no service will be created"."""
    described = workload(generic(**spec))
    assert [o for o in objects(described) if o["kind"] == "Service"] == []
    built = pod(described)["spec"]
    assert "subdomain" not in built
    assert "dnsConfig" not in built


def test_with_ports_pods_find_each_other_by_name_as_well() -> None:
    described = workload(generic(service=PORTS))
    services = [o for o in objects(described) if o["kind"] == "Service"]
    headless = [s for s in services if s["spec"].get("clusterIP") == "None"]
    assert [s["metadata"]["name"] for s in headless] == [described.base]
    assert headless[0]["spec"]["publishNotReadyAddresses"] is True
    assert pod(described)["spec"]["subdomain"] == described.base


def test_generic_labels() -> None:
    labels = pod(workload(generic()), ordinal=1)["metadata"]["labels"]
    assert labels["genericjob"] == "tf"
    assert labels["genericjob-replica"] == "tf-worker-1"
    assert labels["tensorstack.dev/component"] == "genericjob"


def test_no_framework_environment_is_added() -> None:
    assert env(pod(workload(generic()))) == {}


def test_rules_and_policies_are_passed_on() -> None:
    described = workload(
        generic(
            replicas(restartPolicy={"policy": "Always", "limit": 7}),
            successRules=[{"worker": [0]}],
            failureRules=[{"worker": ["0", 1]}],
        )
    )
    assert described.types[0].policy is RestartPolicy.ALWAYS
    assert described.types[0].limit == 7
    assert described.success_rules == ({"worker": (0,)},)
    assert described.failure_rules == ({"worker": (0, 1)},)
    assert described.scope is Scope.REPLICA
    assert not described.shared_budget


def test_objects_pass_the_official_schema() -> None:
    obj = generic(service=PORTS, scheduler={"t9kScheduler": {"queue": "q"}})
    for built in objects(workload(obj)):
        if built["apiVersion"] == "v1":
            kubernetes_validate.validate(built, "1.31", strict=True)


def test_debug() -> None:
    waiting = workload(generic(runMode={"debug": {"enabled": True}}))
    assert container(pod(waiting))["command"] == ["sleep", "inf"]


def test_debug_holds_for_every_container() -> None:
    """None of them is the one that trains, and any that did would start the job."""
    probe = {"exec": {"command": ["true"]}}
    both = [
        {"name": "server", "image": "i", "args": ["serve"], "livenessProbe": probe},
        {"name": "worker", "image": "i", "command": ["work"], "lifecycle": {"preStop": probe}},
    ]
    spec = {"type": "worker", "replicas": 1, "template": {"spec": {"containers": both}}}
    entry = {"type": "worker", "command": ["sh"]}
    waiting = workload(generic(spec, runMode={"debug": {"enabled": True, "replicaSpecs": [entry]}}))
    for made in pod(waiting)["spec"]["containers"]:
        assert made["command"] == ["sh"]
        assert not {"args", "livenessProbe", "lifecycle"} & set(made)


def test_resume() -> None:
    resume = {"pause": {"resumeSpecs": [{"type": "worker", "args": ["$(rank)"]}]}}
    again = pod(workload(generic(runMode=resume)), ordinal=1, resumed=True)
    assert container(again)["args"] == ["1"]


def test_a_node_port_is_left_out_of_the_services() -> None:
    ports = {"ports": [{"name": "grpc", "port": 2222, "nodePort": 30000}]}
    services = [o for o in objects(workload(generic(service=ports))) if o["kind"] == "Service"]
    assert [s["spec"]["ports"] for s in services if "ports" in s["spec"]] == [
        [{"name": "grpc", "port": 2222}],
        [{"name": "grpc", "port": 2222}],
    ]


def test_nulls_in_a_template_are_absent_fields() -> None:
    main = {"name": "a", "image": "i", "command": None, "env": [{"name": "A", "value": None}]}
    built = pod(workload(generic(replicas(containers=[main]))))
    assert "command" not in container(built)
    assert container(built)["env"][-1] == {"name": "A"}


def test_objects_of_a_generated_name_show_what_the_server_will_append() -> None:
    obj = generic()
    obj["metadata"] = {"generateName": "tf-"}
    assert {o["metadata"]["name"][:9] for o in objects(workload(obj))} == {"tf-xxxxx-"}
