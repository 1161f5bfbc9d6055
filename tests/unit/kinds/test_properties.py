"""What holds for any manifest.

``TRAINYARD_SOAK=1`` runs the full 100,000 damaged manifests, a usual run a tenth.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from tests.unit.kinds import manifests as m
from tests.unit.kinds.mutation import damaged_text, mutate, seeds

from trainyard.kinds.kind_admission import admit, check
from trainyard.kinds.kind_registry import KINDS
from trainyard.manifest.reader import read

COUNT = 100_000 if os.environ.get("TRAINYARD_SOAK") else 10_000
EXAMPLES = 1_500 if os.environ.get("TRAINYARD_SOAK") else 150
SHARDS = 10

names = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)
counts = st.integers(1, 5)
commands = st.lists(texts, max_size=2).filter(lambda words: words[:1] != [""])


def maybe(strategies: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=strategies)


@st.composite
def templates(draw: DrawFn, first: str) -> dict[str, Any]:
    fields = maybe(
        {
            "command": commands,
            "workingDir": texts,
            "imagePullPolicy": st.sampled_from(["Always", "Never"]),
            "resources": st.fixed_dictionaries(
                {"limits": maybe({"cpu": st.sampled_from([1, "2", 0.5, "500m"])})}
            ),
            "env": st.lists(st.fixed_dictionaries({"name": names, "value": texts}), max_size=2),
        }
    )
    first_container = m.container(first, args=draw(st.lists(texts, min_size=1, max_size=3)))
    pod = draw(maybe({"nodeSelector": st.dictionaries(names, names, max_size=2)}))
    return m.template({**first_container, **draw(fields)}, **pod)


def modes(types: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    def entries(extra: dict[str, Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
        one = st.fixed_dictionaries({"type": st.sampled_from(types)}, optional=extra)
        return st.lists(one, max_size=2, unique_by=lambda entry: entry["type"])

    command = {"skipInitContainer": st.booleans(), "command": st.lists(texts, max_size=2)}
    resume = {**command, "args": st.lists(texts, max_size=2)}
    return maybe(
        {
            "debug": maybe({"enabled": st.booleans(), "replicaSpecs": entries(command)}),
            "pause": maybe({"enabled": st.booleans(), "resumeSpecs": entries(resume)}),
        }
    )


def failure_policies() -> st.SearchStrategy[dict[str, Any]]:
    codes = st.lists(st.integers(1, 255), min_size=1, max_size=3, unique=True).map(sorted)
    exits = {"operator": st.sampled_from(["In", "NotIn"]), "values": codes}
    forms = st.one_of(
        st.fixed_dictionaries({"onExitCodes": st.fixed_dictionaries(exits)}),
        st.just({"onPodConditions": [{"type": "DisruptionTarget"}]}),
        st.just({"onReasons": ["OOMKilled"]}),
    )
    actions = st.sampled_from(["FailJob", "Ignore", "Count", "Restart"])
    rules = st.builds(lambda action, form: {"action": action, **form}, actions, forms)
    return st.fixed_dictionaries({"rules": st.lists(rules, max_size=3)})


def policies() -> st.SearchStrategy[dict[str, Any]]:
    return maybe(
        {
            "activeDeadlineSeconds": st.integers(1, 2**62),
            "backoffLimit": st.integers(0, 100),
            "cleanUpPolicy": st.sampled_from(["None", "All", "Unfinished"]),
            "ttlSecondsAfterFinished": st.integers(0, 2**31 - 1),
            "restartScope": st.sampled_from(["Job", "Replica"]),
            "podFailurePolicy": failure_policies(),
        }
    )


def elastics() -> st.SearchStrategy[dict[str, Any]]:
    bounds = st.tuples(counts, counts, counts).map(sorted)
    return st.tuples(st.booleans(), bounds).map(
        lambda drawn: {
            "enabled": drawn[0],
            "minReplicas": drawn[1][0],
            "expectedReplicas": drawn[1][1],
            "maxReplicas": drawn[1][2],
        }
    )


SCHEDULERS = maybe({"t9kScheduler": maybe({"queue": names, "priority": st.integers(0, 100)})})
LIMITED = maybe(
    {"policy": st.sampled_from(["Always", "OnFailure", "Never"]), "limit": st.integers(0, 9)}
)


@st.composite
def jobs(draw: DrawFn) -> dict[str, Any]:
    """A valid job of any kind."""
    kind = draw(st.sampled_from(sorted(m.BUILDERS)))
    types = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    spec: dict[str, Any] = {}
    if kind == "DeepSpeedJob":
        types = ["worker"]
        run = draw(st.sampled_from(["python", "module", "exec"]))
        config = draw(maybe({"slotsPerWorker": counts, "localRank": st.booleans()}))
        config["run"] = {run: draw(st.lists(texts, min_size=1, max_size=3))}
        spec["config"] = config
        spec["worker"] = {"replicas": draw(counts), "template": draw(templates("worker"))}
    elif kind == "ColossalAIJob":
        types = ["launcher", "worker"]
        spec["torchConfig"] = {"script": ["train.py"], "procPerWorker": draw(counts)}
        spec["replicaSpecs"] = [
            {"type": "launcher", "template": {}},
            {"type": "worker", "replicas": draw(counts), "template": draw(templates("worker"))},
        ]
    else:
        spec["replicaSpecs"] = [
            {"type": name, "replicas": draw(counts), "template": draw(templates("main"))}
            for name in types
        ]
    for replica in spec.get("replicaSpecs", ()) if kind != "PyTorchTrainingJob" else ():
        replica["restartPolicy"] = draw(LIMITED)
    optional: dict[str, Any] = {"runMode": modes(types), "scheduler": SCHEDULERS}
    if kind in ("PyTorchTrainingJob", "DeepSpeedJob"):
        optional |= {"runPolicy": policies(), "elastic": elastics()}
    if kind == "PyTorchTrainingJob":
        optional["torchrunConfig"] = maybe({"enabled": st.booleans(), "maxRestarts": counts})
    if kind == "GenericJob":
        rule = st.dictionaries(
            st.sampled_from(types), st.lists(st.just(0), min_size=1), min_size=1, max_size=2
        )
        optional["successRules"] = st.lists(rule, max_size=2)
    return m.job(kind, {**spec, **draw(maybe(optional))}, draw(names))


@settings(max_examples=EXAMPLES)
@given(jobs())
def test_a_valid_job_survives_yaml_model_json_model(obj: dict[str, Any]) -> None:
    result = read(m.dump(obj), "job.yaml")
    assert result.errors == ()
    (document,) = result.documents
    assert document.model is not None
    again = KINDS[obj["kind"]].model.model_validate(json.loads(json.dumps(document.model.dump())))
    assert again == document.model
    full = KINDS[obj["kind"]].model.model_validate(document.model.dump_full())
    assert full == document.model


@settings(max_examples=EXAMPLES)
@given(jobs())
def test_reading_twice_is_reading_once_and_storing_again_is_no_change(obj: dict[str, Any]) -> None:
    once = check(obj)
    assert check(once.obj).obj == once.obj
    stored = admit(obj)
    assert stored.allowed
    again = admit(obj, stored.obj)
    assert again.allowed
    assert again.obj == stored.obj


@pytest.mark.parametrize("shard", range(SHARDS))
def test_damaged_manifests_get_a_verdict_with_a_place(shard: int) -> None:
    rng = random.Random(shard)
    sources = seeds()
    for number in range(COUNT // SHARDS):
        source = sources[number % len(sources)]
        state = rng.getstate()
        try:
            if number % 2:
                judge_text(damaged_text(rng, source))
            else:
                judge_object(mutate(rng, source), source)
        except Exception as failure:
            rng.setstate(state)
            failure.add_note(f"shard {shard}, manifest {number}")
            raise


def judge_text(text: str) -> None:
    result = read(text, "f.yaml")
    for problem in result.problems:
        assert problem.message
        assert problem.file == "f.yaml"
        assert problem.line or "no object" in problem.message or "empty" in problem.message, text
    for document in result.documents:
        has_error = any(p.severity == "error" for p in document.problems)
        assert (document.model is None) or not has_error, text
        if document.is_job and not has_error:
            assert document.job is not None, text
            json.dumps(document.job.dump())


def judge_object(obj: dict[str, Any], stored: dict[str, Any]) -> None:
    for verdict in (admit(obj), admit(obj, stored), admit(stored, obj)):
        for problem in verdict.errors:
            assert problem.message
            assert problem.path or not isinstance(obj, dict)
            str(problem)
        if isinstance(obj.get("kind"), str) and obj["kind"] in KINDS:
            assert (verdict.model is None) is bool(verdict.errors)


@settings(max_examples=300)
@given(st.text(max_size=200))
def test_any_text_gets_a_verdict(text: str) -> None:
    result = read(text, "f.yaml")
    assert result.documents or result.errors
