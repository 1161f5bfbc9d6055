"""What `import trainyard` offers: every action of the command line, and the models."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from tools.api_examples import EXAMPLES
from tools.api_reference import FUNCTIONS, methods
from tools.reference_pages import nested

import trainyard
from trainyard.api.machine_shares import volume_of
from trainyard.api.options import RunOptions, ScriptOptions, check
from trainyard.cli.main import cli
from trainyard.kinds import models
from trainyard.kinds.kind_registry import OUR_KINDS

_ACTIONS = {
    "run": "run",
    "init": "propose",
    "validate": "validate",
    "render": "render",
    "convert": "convert",
    "submit": "Client.submit",
    "list": "Client.list",
    "list --watch": "Client.watch",
    "show": "Client.get",
    "logs": "Client.logs",
    "top": "Client.usage",
    "events": "Client.events",
    "wait": "Client.wait",
    "wait --for": "Client.wait_until_gone",
    "delete": "Client.delete",
    "history": "history",
    "rerun": "Client.rerun",
    "diff": "Client.diff",
    "pause": "Client.pause",
    "resume": "Client.resume",
    "scale": "Client.scale",
    "debug": "Client.running_replica",
    "exec": "Client.exec",
    "stacks": "Client.stacks",
    "explain": "Client.explain",
    "queue list": "Client.queues",
    "queue show": "Client.queue",
    "queue create": "Client.create_queue",
    "queue close": "Client.close_queue",
    "queue open": "Client.open_queue",
    "queue delete": "Client.delete_queue",
}
"""What users of the API call for what the command line does."""
_OF_THE_MACHINE = {
    "up": "a client starts one: Client(cluster='background')",
    "down": "ends what other programs use",
    "restart": "changes what other programs use",
    "chaos": "kills clusters of its own, on this machine",
    "doctor": "about this machine",
    "status": "about this machine",
    "kubeconfig": "for kubectl",
    "crds": "for kubectl",
    "manifests": "for kubectl",
    "operator": "a program of its own",
    "completion": "for shells",
}
"""What `trainyard.command` runs as a process of its own, and why that has to do."""


def _commands() -> Iterator[str]:
    for name in cli.list_commands(None):  # type: ignore[arg-type]
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        if isinstance(command, click.Group):
            yield from (f"{name} {each}" for each in command.commands)
        else:
            yield name


def test_every_command_has_its_action() -> None:
    """A new one needs a line above, and what it calls."""
    wanted = {name.partition(" --")[0] for name in _ACTIONS} | set(_OF_THE_MACHINE)
    assert sorted(_commands()) == sorted(wanted)
    for place in _ACTIONS.values():
        found: object = trainyard
        for name in place.split("."):
            found = getattr(found, name)
        assert callable(found), place
        if place.startswith("Client."):
            assert callable(getattr(trainyard.AsyncClient, name)), place


def test_everything_that_is_offered_is_there_and_documented() -> None:
    for name in dir(trainyard):
        found = getattr(trainyard, name)
        if isinstance(found, type) and not name.startswith("_"):
            assert found.__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = trainyard.nonsense  # type: ignore[attr-defined]


def test_every_method_and_function_has_an_example() -> None:
    wanted = [*FUNCTIONS, "Client", *(f"Client.{name}" for name in methods()), "AsyncClient"]
    assert sorted(EXAMPLES) == sorted(wanted)


def test_the_models_are_all_those_that_users_write_in() -> None:
    wanted = set[str]()
    left = [kind.model for kind in OUR_KINDS.values()]
    while left:
        model = left.pop()
        if model.__name__ in wanted:
            continue
        wanted.add(model.__name__)
        assert getattr(trainyard, model.__name__) is model
        for name, field in model.model_fields.items():
            inner, _ = nested(field.annotation)
            if inner is not None and name != "status":
                left.append(inner)
    assert wanted == {name for name in vars(models) if name[0].isupper()}


def test_a_model_knows_its_kind() -> None:
    [rendered, *_] = trainyard.render(
        trainyard.GenericJob(
            metadata=trainyard.ObjectMeta(name="a"),
            spec=trainyard.GenericJobSpec(
                replica_specs=(
                    trainyard.GenericReplicaSpec(
                        type="worker",
                        template={"spec": {"containers": [{"name": "a", "image": "any"}]}},
                    ),
                )
            ),
        )
    )
    assert rendered["metadata"]["name"].startswith("a-")


def test_options_that_cannot_be_are_refused() -> None:
    for given, told in (
        ({"replcias": 2}, "there is no option 'replcias': did you mean 'replicas'?"),
        ({"module": True}, "there is no option 'module'"),
    ):
        with pytest.raises(TypeError, match=re.escape(told)):
            check(given, RunOptions)
    for wrong, told in (
        ({"replicas": 0}, "replicas=0: it is a whole number, 1 or more"),
        ({"gpus": "2"}, "gpus='2': it is a whole number, 0 or more"),
        ({"timeout": 1.5}, "timeout=1.5: it is a whole number"),
        ({"launcher": "mpirun"}, "launcher='mpirun': it is one of torchrun, plain"),
        ({"elastic": (4, 2)}, "elastic=(4, 2): it is the least and the most"),
        ({"elastic": (2, 4), "replicas": 5}, "replicas=5 is not within elastic=(2, 4)"),
        ({"env": ["A=1"]}, "env=['A=1']: it is a dict, such as {'NAME': 'VALUE'}"),
        ({"env": {"A": 1}}, "env: A=1: it is text, or None for what is set here"),
        ({"env": {"NOT_SET": None}}, "env: NOT_SET is not set in this process"),
        ({"mounts": "data=/data"}, "mounts='data=/data': it is a dict"),
    ):
        with pytest.raises(trainyard.CommandError, match=re.escape(told)):
            check(wrong, ScriptOptions)
    with pytest.raises(TypeError, match="there is no option 'resource': did you mean 'resources'"):
        trainyard.Client(options={"resource": {}})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(ValueError, match="cluster='prvate': it is one of any, running"):
        trainyard.Client(cluster="prvate")  # type: ignore[arg-type]


def test_a_manifest_is_proposed_for_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\n")
    text = trainyard.propose(tmp_path / "train.py", [1], replicas=2, env={"A": "1"}, check=False)
    [document] = yaml.safe_load_all(text)
    [replica] = document["spec"]["replicaSpecs"]
    assert replica["replicas"] == 2
    assert replica["template"]["spec"]["containers"][0]["command"][-1] == "1"


@pytest.mark.parametrize("args", ["--name 'two words'", ["--name", "two words"]])
def test_arguments_of_a_script_are_one_text_or_several(tmp_path: Path, args: str) -> None:
    (tmp_path / "train.py").write_text("import os\n")
    text = trainyard.propose(tmp_path / "train.py", args, check=False)
    [replica] = yaml.safe_load(text)["spec"]["replicaSpecs"]
    command = replica["template"]["spec"]["containers"][0]["command"]
    assert command[-2:] == ["--name", "two words"]
    with pytest.raises(trainyard.CommandError, match="cannot be split into words: No closing"):
        trainyard.propose(tmp_path / "train.py", "--name 'two")


def test_what_a_script_needs_is_said_in_the_words_of_python(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import absent_module\n")
    with pytest.raises(trainyard.Error, match=r"not installed for .*or run anyway with check=Fal"):
        trainyard.propose(tmp_path / "train.py")


def test_a_folder_that_is_mounted_is_made_wherever_it_is_named_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert volume_of("data/set", is_claim=False) == {"hostPath": {"path": f"{tmp_path}/data/set"}}
    assert (tmp_path / "data" / "set").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(trainyard.Error, match=r"cannot use .*/file/data: "):
        volume_of("file/data", is_claim=False)


_FOREIGN = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: a}
spec:
  runPolicy: {managedBy: somebody}
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template: {spec: {containers: [{name: pytorch, image: any, command: [train]}]}}
"""


def test_a_job_of_another_system_is_converted_with_a_warning_for_what_is_lost() -> None:
    with pytest.warns(UserWarning, match=r"spec\.runPolicy\.managedBy: has no counterpart"):
        text = trainyard.convert(_FOREIGN)
    assert trainyard.validate(text) == []
    assert "kind: PyTorchTrainingJob" in text


def test_nothing_is_imported_before_it_is_used(tmp_path: Path) -> None:
    code = (
        "import sys; import trainyard; slow = {'asyncio', 'pydantic', 'yaml', 'orjson', 'inspect'};"
        "assert not slow & set(sys.modules), slow & set(sys.modules); trainyard.Client;"
        "assert 'asyncio' in sys.modules, 'or this proves nothing'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
