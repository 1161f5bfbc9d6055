"""A script becomes a job: the manifest that `run` runs and `--save` writes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from trainyard.api.scripts import script_objects
from trainyard.kinds.kind_registry import describe, kinds_by_launcher
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.script import Mount, Script, ScriptError, Sizes
from trainyard.kinds.shared.workload import objects
from trainyard.manifest.reader import read, read_objects
from trainyard.schema.yaml_parser import parse

TRICKY = ("with space", "$(HOME)", "$$", "$", "a: b # c", "two\nreplicas: 1", "", "--", "é", "'\"")
LAUNCHERS = sorted(kinds_by_launcher())


def script(launcher: str, **more: Any) -> Script:
    """A script with two replicas."""
    given = {"name": "train", "target": "train.py", "image": "any", "replicas": 2, **more}
    return Script(launcher=launcher, **given)


def pods(text: str) -> list[dict[str, Any]]:
    """The pods of the one job in a manifest that has no problem."""
    result = read(text)
    assert result.problems == ()
    (job,) = result.jobs
    return [each for each in objects(describe(job, Settings.local())) if each["kind"] == "Pod"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_everything_that_can_be_said_makes_a_manifest_without_problems(launcher: str) -> None:
    is_alone = launcher in ("plain", "none")
    manifest = script(
        launcher,
        arguments=("--epochs", "3"),
        processes=1 if is_alone else 2,
        gpus=2,
        env={"TEXT": "two\nreplicas: 1", "REFERENCE": "$(HOME)"},
        mounts=[Mount({"hostPath": {"path": "/data"}}, "/data")],
        restarts=2,
        elastic=Sizes(1, 4) if launcher in ("torchrun", "deepspeed") else None,
        queue="night",
        timeout_seconds=60 if launcher in ("torchrun", "plain", "deepspeed") else None,
    )
    text = script_objects.text(manifest, folder="/work", heading=["Made by: x", ""])
    assert pods(text)
    plain = json.loads(json.dumps(script_objects.objects(manifest, folder="/work")))
    assert [each.raw for each in read(text).documents] == plain
    assert [each.raw for each in read_objects(plain).documents] == plain
    bare = "\n".join(line.split("  # ")[0] for line in text.splitlines())
    assert list(yaml.safe_load_all(bare)) == list(yaml.safe_load_all(text))
    assert [parsed.data for parsed in parse(text)] == list(yaml.safe_load_all(text))
    env = [entry for pod in pods(text) for entry in _main(pod).get("env", ())]
    values = {entry["name"]: entry.get("value") for entry in env}
    assert values["TEXT"] == "two\nreplicas: 1"
    assert values["REFERENCE"] == "$$(HOME)"


def _main(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(
    ("launcher", "form", "words"),
    [
        ("plain", "python", ["python", "train.py"]),
        ("plain", "module", ["python", "-m", "train.py"]),
        ("none", "python", ["python", "train.py"]),
        ("none", "program", ["train.py"]),
        ("torchrun", "python", ["train.py"]),
        ("torchrun", "module", ["-m", "train.py"]),
    ],
)
def test_words_of_the_command_line_arrive_as_they_were_written(
    launcher: str, form: Any, words: list[str]
) -> None:
    interpreter = "" if form == "program" else "python"
    manifest = script(launcher, form=form, arguments=TRICKY, interpreter=interpreter)
    container = _main(pods(script_objects.text(manifest))[0])
    found = [*container.get("command", ()), *container.get("args", ())]
    wanted = [
        *words,
        *(word.replace("$", "$$") if word in ("$(HOME)", "$$") else word for word in TRICKY),
    ]
    assert found[-len(wanted) :] == wanted


@pytest.mark.parametrize(("form", "field"), [("python", "python"), ("module", "module")])
def test_a_launch_over_ssh_takes_words_as_they_are(form: Any, field: str) -> None:
    job = (
        read(script_objects.text(script("deepspeed", form=form, arguments=TRICKY))).documents[0].raw
    )
    assert job["spec"]["config"]["run"] == {field: ["train.py", *TRICKY]}


def test_what_colossalai_run_passes_through_a_shell_is_quoted() -> None:
    manifest = script("colossalai", arguments=("a b", "plain", "$HOME"))
    job = read(script_objects.text(manifest)).documents[0].raw
    assert job["spec"]["torchConfig"]["script"] == ["train.py", "'a b'", "plain", "'$HOME'"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (script("plain", processes=2), "starts one process in each replica"),
        (script("none", processes=2), "starts one process in each replica"),
        (script("plain", elastic=Sizes(1, 2)), "cannot run an elastic job"),
        (script("none", elastic=Sizes(1, 2)), "cannot run an elastic job"),
        (script("colossalai", elastic=Sizes(1, 2)), "cannot run an elastic job"),
        (script("colossalai", timeout_seconds=1), "has no --timeout"),
        (script("none", timeout_seconds=1, restarts=1), "has no --timeout"),
        (script("colossalai", target="my train.py"), "rename it"),
        *((script(each, form="program"), "is no Python script") for each in LAUNCHERS[:2]),
    ],
)
def test_what_a_launcher_cannot_do_is_refused(said: Script, told: str) -> None:
    with pytest.raises(ScriptError, match=told):
        script_objects.text(said)


def test_a_carried_script_is_the_text_in_a_config_map() -> None:
    content = 'print("replicas: 1")\n\n\tx = "é"\nif True:\n    pass'
    text = script_objects.text(script("plain", target="a/my train.py"), content=content)
    config, job = (document.raw for document in read(text).documents)
    manifest = script("plain", target="a/my train.py")
    assert [config, job] == json.loads(
        json.dumps(script_objects.objects(manifest, content=content))
    )
    assert config["data"] == {"my_train.py": content}
    container = _main(pods(text)[0])
    assert container["command"] == ["python", f"{script_objects.CONFIG_MAP_PATH}/my_train.py"]
    assert job["metadata"]["name"] == "train"
    with pytest.raises(ScriptError, match="a ConfigMap carries 1024 at most"):
        script_objects.text(script("plain"), content="#" * (1 << 20) + "\n")


def test_a_folder_is_named_only_where_it_is_not_the_manifests_own() -> None:
    assert "working-dir" not in script_objects.text(script("plain"))
    (pod, _) = pods(script_objects.text(script("plain"), folder="/work"))
    assert pod["metadata"]["annotations"]["trainyard.dev/working-dir"] == "/work"


def test_the_interpreter_has_the_name_that_it_has_here() -> None:
    manifest = replace(script("plain"), interpreter="python3")
    assert _main(pods(script_objects.text(manifest))[0])["command"] == ["python3", "train.py"]
