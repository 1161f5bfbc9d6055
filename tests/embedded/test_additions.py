"""What can be added to a cluster that is up, and what it says of options that it does not have."""

from __future__ import annotations

import json
import venv
from pathlib import Path

from tests.embedded.command_line import CommandLine, job, shell, until

_VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def writer(name: str) -> object:
    """A job that notes in the claim `data` which environment it runs in."""
    mounts = [{"name": "data", "mountPath": "/data"}]
    command = shell(f"python -c 'import sys; print(sys.prefix)' > /data/{name}")
    return job(name, command, container={"volumeMounts": mounts}, pod={"volumes": [_VOLUME]})


def test_folders_and_environments_are_added_to_a_cluster_that_is_up(
    trainyard: CommandLine, tmp_path: Path
) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    files = {name: trainyard.manifest(f"{name}.yaml", writer(name)) for name in ("a", "b", "c")}
    image = f"busy*={tmp_path}/env"
    trainyard.run("up", "--volume", f"data={tmp_path}/first", "--resource", "nvidia.com/gpu=8")
    try:
        trainyard.run("submit", "-f", files["a"], "--volume", "data=out", "--image", image)
        trainyard.run("wait", "a")
        assert (tmp_path / "out" / "a").read_text() == f"{tmp_path}/env\n"
        trainyard.run("submit", "-f", files["b"])
        trainyard.run("wait", "b")
        assert (tmp_path / "out" / "b").exists(), "the claim keeps its folder"
        assert (tmp_path / "out" / "b").read_text() != f"{tmp_path}/env\n"
        (tmp_path / "out").rename(tmp_path / "gone")
        trainyard.run("submit", "-f", files["c"])
        told = f"claim 'data' stands for {tmp_path}/out, which does not exist"
        until(lambda: told in trainyard.run("events", "c"), told)
        (tmp_path / "gone").rename(tmp_path / "out")
        trainyard.run("wait", "c")
        refuses_what_does_not_hold(trainyard)
    finally:
        trainyard.run("down")


def refuses_what_does_not_hold(trainyard: CommandLine) -> None:
    """`up` with what holds is fine, with anything else it says so and fails; so does `run`."""
    first = f"data={trainyard.folder}/first"
    for options in ((), ("--volume", first), ("--resource", "nvidia.com/gpu=8")):
        assert "already up" in trainyard.run("up", *options)
    for option, value in (
        ("--volume", f"data={trainyard.folder}/second"),
        ("--image", f"any={trainyard.folder}/env"),
        ("--resource", "nvidia.com/gpu=4"),
        ("--isolation", "plain"),
        ("--pids-limit", "77"),
        ("--log-max-files", "7"),
        ("--network", "none"),
        ("--allow-port", "5432"),
        ("--port", "1"),
        ("--pass-env", "SOME_*"),
    ):
        output = trainyard.run("up", option, value, code=1)
        assert output.startswith("error: the cluster is up already (process ")
        assert f"without {option} {value}: to change it, `trainyard down`" in output.replace(
            "'", ""
        )
        assert ("trainyard submit" in output) == (option in ("--volume", "--image"))
    assert "without --strict-scheduling:" in trainyard.run("up", "--strict-scheduling", code=1)
    output = trainyard.run("run", "--keep", "-f", "a.yaml", "--pids-limit", "77", code=1)
    assert "without --pids-limit 77" in output
    record = json.loads((trainyard.state / "cluster.json").read_text())
    assert record["settings"]["resources"] == {"nvidia.com/gpu": 8}


def test_a_cluster_elsewhere_takes_no_folder_of_this_machine(trainyard: CommandLine) -> None:
    file = trainyard.manifest("a.yaml", writer("a"))
    output = trainyard.run(
        *("submit", "-f", file, "--volume", "data=out", "--context", "any"), code=2
    )
    assert "no folder of this machine" in output
