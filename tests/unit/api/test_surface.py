"""What `import trainyard` offers: every action of the command line, and the models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.api_examples import EXAMPLES
from tools.api_reference import FUNCTIONS, methods
from tools.reference_pages import nested

import trainyard
from trainyard.cli.main import cli
from trainyard.kinds import models
from trainyard.kinds.table import OUR_KINDS

_ACTIONS = {
    "run": "run",
    "validate": "validate",
    "render": "render",
    "convert": "convert",
    "submit": "Client.submit",
    "list": "Client.list",
    "show": "Client.get",
    "logs": "Client.logs",
    "events": "Client.events",
    "wait": "Client.wait",
    "delete": "Client.delete",
    "pause": "Client.pause",
    "resume": "Client.resume",
    "scale": "Client.scale",
    "debug": "Client.running_replica",
    "exec": "Client.exec",
    "explain": "Client.explain",
    "queue": "Client.queues",
}
"""The others are of this machine and its files: `trainyard.command` runs them."""


@pytest.mark.parametrize("command", cli.list_commands(None))  # type: ignore[arg-type]
def test_every_action_of_the_command_line_is_possible(command: str) -> None:
    place = _ACTIONS.get(command, "command")
    found = trainyard
    for name in place.split("."):
        found = getattr(found, name)
    assert callable(found)


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


def test_nothing_is_imported_before_it_is_used(tmp_path: Path) -> None:
    code = (
        "import sys; import trainyard; slow = {'asyncio', 'pydantic', 'yaml', 'orjson', 'inspect'};"
        "assert not slow & set(sys.modules), slow & set(sys.modules); trainyard.Client;"
        "assert 'pydantic' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
