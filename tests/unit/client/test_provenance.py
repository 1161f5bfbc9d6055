"""What is recorded of a submission: commit and changes, packages, no secrets; copies of code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
from importlib import metadata
from pathlib import Path

import pytest

from trainyard.client import code_snapshot, git_repository, submission_records
from trainyard.client.cluster_target import ClusterTarget, CommandError
from trainyard.client.installed_packages import environment_of
from trainyard.client.provenance import SubmissionContext, record
from trainyard.kinds.shared import labels

_PATIENCE_SECONDS = 120.0


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two committed files, of which one is ignored beside them."""
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "package" / "model.py").write_text("")
    (folder / ".gitignore").write_text("data/\n*.log\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    git(folder, "remote", "add", "origin", "https://me:hunter2@example.com/project.git")
    return folder


# git.


def test_the_commit_is_read_wherever_git_keeps_it(project: Path) -> None:
    head = git(project, "rev-parse", "HEAD")
    remote = "https://example.com/project.git"
    expected = git_repository.Commit(str(project), head, "main", remote)
    assert git_repository.commit_of(project / "package") == expected
    git(project, "pack-refs", "--all")
    assert git_repository.commit_of(project) == expected
    git(project, "worktree", "add", "-q", "-b", "other", str(project.parent / "second"))
    found = git_repository.commit_of(project.parent / "second")
    assert found == git_repository.Commit(str(project.parent / "second"), head, "other", remote)
    git(project, "checkout", "-q", "--detach")
    found = git_repository.commit_of(project)
    assert found is not None
    assert (found.commit, found.branch) == (head, "")


def test_where_there_is_no_commit_none_is_told(tmp_path: Path) -> None:
    assert git_repository.commit_of(tmp_path) is None
    git(tmp_path, "init", "-q")
    found = git_repository.commit_of(tmp_path)
    assert found is not None
    assert (found.commit, found.branch) == ("", "main")


def changes(folder: Path, kept: Path) -> git_repository.Changes:
    kept.mkdir()
    git_repository.watch_changes(folder, kept)
    until = time.monotonic() + _PATIENCE_SECONDS
    while (found := git_repository.changes_in(kept)) is None:
        assert time.monotonic() < until, os.listdir(kept)
        time.sleep(0.01)
    return found


def test_git_writes_what_was_changed(project: Path, tmp_path: Path) -> None:
    assert changes(project, tmp_path / "clean") == git_repository.Changes()
    assert not (tmp_path / "clean" / git_repository.DIFF).exists()
    (project / "train.py").write_text("print(2)\n")
    (project / "new file.py").write_text("")
    (project / "x.log").write_text("")
    found = changes(project, tmp_path / "dirty")
    assert (found.changed, found.untracked) == (("train.py",), ("new file.py",))
    assert found.is_dirty
    assert "+print(2)" in (found.diff or "")
    assert git_repository.changes_now(project) == found
    assert not list(project.glob(".git/*.lock"))


# Packages.


@pytest.mark.parametrize("how", ["fsmonitor", "hook", "filter", "process", "included", "submodule"])
def test_git_runs_no_program_of_the_folder_that_it_looks_at(tmp_path: Path, how: str) -> None:
    folder, ran = tmp_path / "folder", tmp_path / "ran"
    folder.mkdir()
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)

    def mine(*words: str) -> None:
        git(folder, "-c", "protocol.file.allow=always", *words)

    mine("init", "-q")
    (folder / "s.py").write_text("print(1)")
    (folder / ".gitattributes").write_text("*.py filter=f\n")
    mine("add", ".")
    mine("commit", "-qm", "x")
    if how == "submodule":
        other = tmp_path / "other"
        shutil.copytree(folder, other)
        mine("submodule", "add", str(other), "sub")
        mine("commit", "-qm", "y")
        git(folder / "sub", "config", "core.fsmonitor", str(program))
    elif how == "fsmonitor":
        mine("config", "core.fsmonitor", str(program))
    elif how == "hook":
        mine("config", "core.hooksPath", str(tmp_path))
        program.rename(tmp_path / "post-index-change")
    elif how == "included":
        (tmp_path / "more").write_text(f'[filter "f"]\nclean = {program}\nrequired = true\n')
        mine("config", "include.path", str(tmp_path / "more"))
    else:
        mine("config", f"filter.f.{'clean' if how == 'filter' else how}", str(program))
        mine("config", "filter.f.required", "true")
    ran.unlink(missing_ok=True)
    (folder / "s.py").write_text("print(22)")
    changes = git_repository.changes_now(folder)
    assert changes is not None
    assert changes.changed == ("s.py",)
    assert "+print(22)" in (changes.diff or "")
    code_snapshot.copy_code(folder, tmp_path / "copy")
    assert not ran.exists()


def test_packages_are_those_that_the_interpreter_would_list() -> None:
    found = environment_of(sys.executable)
    listed = {
        (d.name.replace("_", "-").replace(".", "-").lower(), d.version)
        for d in metadata.distributions()
        if d.metadata["Name"] and "site-packages" in str(d.locate_file(""))
    }
    assert {tuple(each.split("==")) for each in found.packages} == listed
    assert found.version.startswith(f"{sys.version_info.major}.{sys.version_info.minor}")


def test_an_environment_that_sees_the_system_has_its_packages_too(tmp_path: Path) -> None:
    venv.create(tmp_path / "own", symlinks=True)
    venv.create(tmp_path / "both", symlinks=True, system_site_packages=True)
    own, both = (environment_of(str(tmp_path / n / "bin" / "python")) for n in ("own", "both"))
    assert own.packages == ()
    system = environment_of(os.path.realpath(tmp_path / "own" / "bin" / "python"))
    assert both.packages == system.packages


# Copies.


def copied(folder: Path, to: Path) -> tuple[code_snapshot.Copied, list[str]]:
    found = code_snapshot.copy_code(folder, to, without=folder / "state")
    return found, sorted(str(p.relative_to(to)) for p in to.rglob("*") if not p.is_dir())


def test_of_a_repository_all_but_what_is_ignored_is_copied(project: Path, tmp_path: Path) -> None:
    (project / "train.py").write_text("print(2)\n")
    (project / "new.py").write_text("")
    (project / "data").mkdir()
    (project / "data" / "big").write_text("")
    (project / "package" / "model.py").unlink()
    (project / "link").symlink_to("../elsewhere")
    (project / "near").symlink_to("train.py")
    found, names = copied(project, tmp_path / "copy")
    assert names == [".gitignore", "link", "near", "new.py", "train.py"]
    assert found.files == tuple(names)
    assert (tmp_path / "copy" / "train.py").read_text() == "print(2)\n"
    assert os.readlink(tmp_path / "copy" / "link") == str(tmp_path / "elsewhere")
    assert os.readlink(tmp_path / "copy" / "near") == "train.py"


def test_without_a_repository_what_nobody_edits_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name in ("a.py", "sub/b.py", ".venv/x", "env/pyvenv.cfg", "__pycache__/c.pyc", "state/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    assert copied(folder, tmp_path / "copy")[1] == ["a.py", "sub/b.py"]


def test_what_is_too_much_for_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with open(folder / "weights.pt", "wb") as file:
        file.truncate(code_snapshot.MOST_BYTES + 1)
    with pytest.raises(CommandError, match=r"weights\.pt \(256 MiB\)"):
        copied(folder, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


# The record.


def body(folder: Path, **container: object) -> dict[str, object]:
    pod = {"spec": {"containers": [{"name": "main", "image": "any", **container}]}}
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "GenericJob",
        "metadata": {"name": "one", "annotations": {labels.WORKING_DIR: str(folder)}},
        "spec": {"replicaSpecs": [{"type": "worker", "template": pod}]},
    }


def test_no_secret_is_written(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    state = tmp_path / "state"
    target = ClusterTarget(None, "default", "", str(state / "api.sock"), state)  # type: ignore[arg-type]
    job = body(
        project,
        command=["python", "t.py", "--password", "hunter2"],
        env=[{"name": "HF_TOKEN", "value": "hunter2"}, {"name": "DB", "value": "x://a:hunter2@b"}],
    )
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "hunter2"}}
    record(target, [secret, job], SubmissionContext())
    found = next(submission_records.records(state))
    place = "GenericJob one.spec.replicaSpecs[0].template.spec.containers[0]"
    assert found.content["leftOut"] == [
        "Secret s",
        f"{place}.command[3]",
        f"{place}.env[0].value",
        f"{place}.env[1].value",
    ]
    annotations = job["metadata"]["annotations"]  # type: ignore[index]
    assert annotations[labels.RECORD] == found.name
    assert "hunter2" not in (found.folder / "record.json").read_text() + str(annotations)
    assert found.packages
    assert annotations[labels.PACKAGES].startswith(f"{len(found.packages)} ")


def test_old_records_are_forgotten_but_code_in_use_is_not(tmp_path: Path) -> None:
    names = [f"202601{day:02}-000000-a" for day in range(1, 25)]
    for name in names:
        (tmp_path / "submissions" / name / "code").mkdir(parents=True)
    assert submission_records.is_crowded(tmp_path)
    submission_records.forget(tmp_path, {names[0]})
    left = sorted(os.listdir(tmp_path / "submissions"))
    assert left == [names[0], *names[4:]]
