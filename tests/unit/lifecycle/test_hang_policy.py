"""What follows when the ranks of a job get nowhere: condition, event, evidence, restart, end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

import pytest

from tests.unit.lifecycle.test_hang_detector import rank
from tests.unit.lifecycle.world import World, generic, pytorch, torchrun
from trainyard.kube import embedded_contract
from trainyard.kube.resources import CONFIG_MAPS
from trainyard.lifecycle import Observed
from trainyard.lifecycle.actions import Create
from trainyard.lifecycle.pod_reports import PodReports
from trainyard.schema.times import render

CULPRIT = "worker-1 (rank 1) has not entered all_reduce #6; it sleeps in wait_for_peer, train.py:5"
TOLD = f"{CULPRIT}; rank 0 waits in train.py:12"


class Reporting(World):
    """Its ranks do what `doing` says, since it was said."""

    doing: tuple[str, ...] = ()
    attempt = 1
    size: int | None = None
    library = ""
    doubles = False
    """Whether each pod has a rank 0."""
    unobserved = ""

    def say(self, *doing: str, attempt: int = 1) -> Self:
        self.doing, self.attempt, self.said = doing, attempt, self.now
        return self

    def observed(self) -> Observed:
        ranks = tuple(
            replace(
                rank(number, kind, attempt=self.attempt),
                pod=self.name(str(number)),
                since=self.said,
                received_at=self.now,
                size=self.size or len(self.doing),
                library=self.library,
                unobserved=self.unobserved,
            )
            for number, kind in enumerate(self.doing)
        )
        doubles = (ranks[0], replace(ranks[1], rank=0)) if self.doubles and ranks else None
        return replace(super().observed(), reports=PodReports(ranks=ranks, doubles=doubles))


def hanging(job: dict[str, Any]) -> Reporting:
    """Two replicas, of which one does not come; not yet for long enough to be told."""
    world = Reporting(job)
    world.running()
    world.say("Waiting", "Idle").advance(299).settle()
    assert world.condition("Hung") is None
    return world


def job(action: str = "Explain", policy: str = "OnFailure", **more: Any) -> dict[str, Any]:
    return pytorch(workers=2, policy=policy, run_policy={"hang": {"action": action}, **more})


def test_a_hang_is_a_condition_an_event_and_kept_once() -> None:
    world = hanging(job())
    assert world.last.wake_at is not None
    assert world.last.wake_at - world.now == timedelta(seconds=1)
    world.advance(1).settle()
    assert world.condition("Hung") == ("True", "Hung", TOLD)
    assert world.messages("Hung") == [f"{TOLD}."]
    world.advance(60).settle()
    assert world.messages("Hung") == [f"{TOLD}."]
    [kept] = [obj for (resource, _), obj in world.owned.items() if resource == CONFIG_MAPS]
    assert kept["metadata"]["name"].endswith("-hang-1")
    assert kept["data"]["finding"] == TOLD
    assert "wait_for_peer (/w/train.py:5)" in kept["data"]["stacks"]
    assert world.phase == "Running"


def test_a_hang_that_is_over_is_told_as_over() -> None:
    world = hanging(job())
    world.advance(1).settle().say("Collecting", "Collecting").settle()
    text = "The ranks get on, as far as they are observed."
    assert world.condition("Hung") == ("False", "-", text)


def test_another_controller_takes_no_hang_back_of_which_it_has_not_heard_enough() -> None:
    world = hanging(job())
    world.advance(1).settle()
    world.size = 2
    conditions = world.status["conditions"]
    for kinds in ((), ("Waiting",), ("Waiting", "Idle")):
        began = world.said
        world.say(*kinds).said = began
        world.advance(10).settle()
        assert world.status["conditions"] == conditions
    assert world.messages("Hung") == [f"{TOLD}."]
    # Of those that it has heard, one gets on.
    world.say("Collecting").settle()
    assert world.condition("Hung") == (
        "False",
        "-",
        "The ranks get on, as far as they are observed.",
    )


def stop(world: Reporting, *processes: int) -> Reporting:
    """As the node tells that a signal has stopped these of the second replica."""
    pod = world.pods[world.name("1")]
    stopped = {"type": embedded_contract.STOPPED, "status": "True" if processes else "False"}
    stopped |= {"message": embedded_contract.stopped_message(processes)} if processes else {}
    stopped["lastTransitionTime"] = render(world.now)
    pod["status"]["conditions"] = [stopped]
    return world


def test_a_rank_that_its_node_says_to_be_stopped_hangs_the_others() -> None:
    world = Reporting(job())
    world.running()
    world.say("Waiting", "Collecting").advance(100)
    stop(world, 7, 41).settle().advance(299).settle()
    assert world.condition("Hung") is None
    world.advance(1).settle()
    status, reason, text = world.condition("Hung") or ("", "", "")
    assert (status, reason) == ("True", "RankStopped")
    assert text.startswith("worker-1 (rank 1) is stopped by a signal, and has not entered")
    [kept] = [obj for (resource, _), obj in world.owned.items() if resource == CONFIG_MAPS]
    assert "worker-1 (rank 1): stopped" in kept["data"]["stacks"]
    stop(world).say("Collecting", "Collecting").settle()
    assert (world.condition("Hung") or ())[:2] == ("False", "-")


def test_another_process_of_its_pod_or_too_short_a_stop_is_no_hang() -> None:
    world = Reporting(job())
    world.running()
    world.say("Waiting", "Collecting")
    stop(world, 7).advance(600).settle()
    assert world.condition("Hung") is None
    stop(world, 41).advance(200).settle()
    stop(world).advance(1).settle()
    stop(world, 41).advance(299).settle()
    assert world.condition("Hung") is None


def test_waiting_for_a_busy_rank_is_told_and_never_acted_on() -> None:
    world = hanging(job("Fail"))
    world.say("Waiting", "Busy").advance(3000).settle()
    hung = world.condition("Hung")
    assert hung is not None
    assert hung[:2] == ("False", "WaitsForBusyRank")
    assert world.phase == "Running"


def test_a_restart_is_an_incident_whatever_the_restart_policy_says() -> None:
    world = hanging(job("Restart", policy="Never"))
    world.advance(1).settle()
    assert world.status is not None
    [first, second] = world.status["attempts"]
    assert (first["reason"], first["replica"]) == ("Hung", world.name("1"))
    assert first["message"] == "runPolicy.hang restarts after this failure"
    assert second["number"] == 2
    assert world.status["backoffCount"] == 1
    # What the pods of the first attempt still say is nothing about the second.
    world.advance(600).settle()
    assert world.status["backoffCount"] == 1
    assert any(resource == CONFIG_MAPS for resource, _ in world.owned)


def test_a_job_that_is_paused_hangs_no_more() -> None:
    world = hanging(job("Explain"))
    world.advance(1).settle()
    assert (world.condition("Hung") or ())[0] == "True"
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    world.settle()
    assert world.condition("Hung") is None


def test_a_restart_that_is_beyond_the_budget_ends_the_job() -> None:
    world = hanging(job("Restart", backoffLimit=0))
    world.advance(1).settle()
    assert world.phase == "Failed"
    assert world.status is not None
    message = world.status["attempts"][-1]["message"]
    assert message == "runPolicy.hang would restart, but its restarts are used up"
    assert any(resource == CONFIG_MAPS for resource, _ in world.owned)


def test_a_hang_ends_the_job_where_that_is_wanted() -> None:
    world = hanging(job("Fail"))
    world.advance(1).settle()
    assert world.phase == "Failed"
    condition = world.condition("Failed")
    assert condition is not None
    assert condition[1:] == ("Hung", f"PyTorchTrainingJob train has failed: it hangs; {TOLD}")
    assert any(isinstance(action, Create) for action in world.last.actions) or world.owned


def test_who_is_not_observed_is_not_judged() -> None:
    world = Reporting(job(observe=False))
    world.running()
    world.say("Waiting", "Idle").advance(3000).settle()
    assert world.condition("Hung") is None


def test_a_job_whose_replicas_are_not_all_there_is_not_judged() -> None:
    world = Reporting(job("Fail"))
    world.settle()
    world.say("Waiting", "Idle").advance(3000).settle()
    assert world.condition("Hung") is None


def test_a_generic_job_that_says_that_it_serves_is_not_judged() -> None:
    serving = generic(service={"ports": [{"name": "http", "port": 80}]})
    serving["spec"]["runPolicy"] = {"hang": {"action": "Fail"}}
    world = Reporting(serving)
    world.running()
    world.say("Waiting", "Idle").advance(3000).settle()
    assert world.condition("Hung") is None


@pytest.mark.parametrize(
    ("value", "port", "is_judged"),
    [
        ("29500", {"port": 29500}, True),
        ("29500", {"port": 80, "targetPort": 29500}, True),
        ("$(service.port[meet])", {"port": 29500}, True),
        ("29500", {"port": 80}, False),
    ],
)
def test_the_port_at_which_ranks_meet_serves_nobody(
    value: str, port: dict[str, Any], is_judged: bool
) -> None:
    job = generic(service={"ports": [{"name": "meet", **port}]}, runPolicy={"hang": {}})
    (worker,) = job["spec"]["replicaSpecs"]
    (main,) = worker["template"]["spec"]["containers"]
    main["env"] = [{"name": "MASTER_PORT", "value": value}]
    world = Reporting(job)
    world.running()
    world.say("Waiting", "Idle").advance(300).settle()
    assert ((world.condition("Hung") or ("",))[0] == "True") == is_judged


def test_the_time_in_which_a_job_hung_is_told_as_that() -> None:
    world = hanging(job())
    world.advance(1).settle().advance(60)
    world.say("Collecting", "Collecting").settle().advance(40).run().exit("0", 0).exit("1", 0)
    world.settle()
    assert world.status is not None
    goodput = world.status["goodput"]
    assert (goodput["hung"], goodput["unknown"]) == (360, 40)
    [attempt] = goodput["attempts"]
    assert (attempt["hung"], attempt["unknown"]) == (360, 40)


def test_so_is_that_of_a_job_which_starts_again_or_ends_for_it() -> None:
    for action, state in (("Restart", "restarting"), ("Fail", None)):
        world = hanging(job(action))
        world.advance(1).settle()
        assert world.status is not None
        told = world.status["goodput"]
        assert (told["hung"], told["unknown"], told.get("state")) == (300, 0, state)
        assert told["attempts"][0]["hung"] == 300


def ended(world: Reporting, *doing: str, attempt: int = 1) -> list[str]:
    """What is told of a job whose ranks have said so before rank 0 ended well."""
    world.running()
    world.size = 2
    world.say(*doing, attempt=attempt).settle()
    world.exit("0", 0).settle()
    assert world.phase == "Succeeded"
    return world.messages("RanksApart")


APART = (
    "No process group of torch.distributed was made: each of the 2 ranks works on its own, and "
    "what rank 0 trains is its own alone."
)


def test_ranks_that_never_met_are_told_at_the_end() -> None:
    assert ended(Reporting(torchrun(workers=2)), "Alone") == [APART]
    assert ended(Reporting(torchrun(workers=2)), "Left", "Alone") == []
    assert ended(Reporting(torchrun(workers=2)), "Alone", attempt=7) == []
    assert ended(Reporting(torchrun(workers=2))) == []
    # Who starts ranks without a launcher may well want them to share work by their numbers.
    assert ended(Reporting(job()), "Alone") == []


def test_one_that_ended_before_it_could_meet_others_is_not_told_apart() -> None:
    world = Reporting(torchrun(workers=2))
    world.running()
    world.say("Alone").settle()
    assert world.messages("RanksApart") == []
    world.exit("0", 1).settle()
    assert world.messages("RanksApart") == []


def test_ranks_that_train_apart_are_told_at_once_and_once() -> None:
    world = Reporting(torchrun(workers=2))
    world.running()
    world.size = 2
    world.say("Apart").settle()
    assert world.messages("RanksApart") == [APART]
    assert world.condition("RanksApart") == ("True", "NeverMet", APART)
    world.say().advance(60).settle()  # as a controller that has just begun
    assert world.condition("RanksApart") == ("True", "NeverMet", APART)
    world.say("Apart").exit("0", 0).settle()
    assert world.phase == "Succeeded"
    assert world.messages("RanksApart") == [APART]


def test_ranks_that_have_met_since_are_not_told_apart() -> None:
    world = Reporting(torchrun(workers=2))
    world.running()
    world.size = 2
    world.say("Apart").settle().say("Collecting", "Collecting").settle()
    assert world.condition("RanksApart") is None


@pytest.mark.parametrize(("library", "told"), [("mpi4py", "MPI knows of one"), ("jax", "jax.dist")])
def test_those_that_another_library_has_apart_are_told_without_a_launcher(
    library: str, told: str
) -> None:
    world = Reporting(job())
    world.running()
    world.size, world.library = 2, library
    world.say("Apart").settle()
    [message] = world.messages("RanksApart")
    assert message.startswith(told)


def test_replicas_that_have_groups_of_their_own_are_told() -> None:
    message = (
        "worker-0 and worker-1 both have a rank 0 of 2: their process groups are not the same, and "
        "each of them trains a model of its own."
    )
    world = Reporting(job())
    world.running()
    world.doubles = True
    world.say("Collecting", "Collecting").settle()
    assert world.messages("RanksApart") == [message]
    alone = Reporting(generic())
    alone.running()
    alone.doubles = True
    alone.say("Collecting", "Collecting").settle()
    assert alone.messages("RanksApart") == []


def test_one_that_never_met_is_waited_for_by_nobody() -> None:
    world = Reporting(torchrun(workers=2))
    world.running()
    world.say("Alone", "Waiting").advance(900).settle()
    found = world.condition("Hung")
    assert found is not None
    assert found[:2] == ("False", "HangSuspected")
    assert "rank 0 never reported" in found[2]


@pytest.mark.parametrize("code", [0, 137])
def test_what_a_hung_replica_answers_to_its_stop_is_not_told(code: int) -> None:
    spec = generic(
        successRules=[{"worker": [0]}],
        failureRules=[{"worker": [0]}],
        runPolicy={"hang": {"action": "Restart"}},
    )
    world = hanging(spec)
    world.advance(1).step()
    name = world.name("1")
    message = f"Pod[{name}] failed (Hung)"
    assert (world.condition("ReplicaFailure") or ("", "", ""))[2] == f"{message}: {TOLD}"
    assert world.pods[name]["spec"]["activeDeadlineSeconds"] == 1
    world.exit("1", code)
    world.pods[name]["status"] |= {"phase": "Failed", "reason": "DeadlineExceeded"}
    world.say().settle()
    [_, entry] = world.status["tasks"][0]["replicas"]
    assert (entry["phase"], entry["reason"]) == ("Failed", "Hung")
    assert (world.condition("ReplicaFailure") or ("", "", ""))[2] == message


def test_what_a_hung_replica_answers_to_its_stop_is_no_cause() -> None:
    """A peer has failed, and for a moment it is open what came before that."""
    rules = [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}]
    policy = {"hang": {"action": "Restart"}, "podFailurePolicy": {"rules": rules}}
    world = Reporting(pytorch(workers=3, run_policy=policy))
    world.running()
    world.say("Waiting", "Waiting").advance(300).exit("2", 1).step()
    name = world.name("0")
    assert world.pods[name]["spec"]["activeDeadlineSeconds"] == 1
    world.say().exit("0", 137)
    world.pods[name]["status"] |= {"reason": "DeadlineExceeded"}
    world.advance(1).step()
    world.advance(1).settle()
    [restart] = world.messages("Restart")
    assert restart.startswith(f"Pod[{world.name('2')}] exited with error code 1\n")
    assert world.backoff == 0


def test_collectives_that_are_not_observed_are_told_once_and_a_hang_goes_before_that() -> None:
    why = "torch 2.16.0 has no flight recorder of nccl that is known here"
    world = Reporting(job())
    world.running()
    world.unobserved = why
    world.say("Busy", "Busy").settle()
    text = (
        f"Collectives are not observed: {why}. Hangs are told by what else the ranks do, "
        "stragglers and progress without reports not at all."
    )
    assert world.condition("Hung") == ("False", "CollectivesNotObserved", text)
    world.advance(60).settle()
    assert world.messages("CollectivesNotObserved") == [text]
    world.say("Waiting", "Idle").advance(300).settle()
    assert world.condition("Hung") == ("True", "Hung", TOLD)
    world.say("Busy", "Busy").settle()
    assert world.condition("Hung") == ("False", "CollectivesNotObserved", text)
