"""The suites of Kubernetes' clients against the embedded cluster (`client_suites.py`).

What does not pass is listed in `expected`, with a reason; one that is listed and passes fails the
test as well.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine
from tests.foreign.client_suites import SUITES, Repository, Suite, run
from tests.tools import kubectl_path, oldest_and_newest_kubectl, soak
from trainyard.machine.state_folder import Paths


@pytest.mark.skipif(not soak(0, 1), reason="minutes: a part of the soak")
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_only_what_is_listed_fails(cluster: CommandLine, suite: Suite, tmp_path: Path) -> None:
    suite.client.program()  # or a skip
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl").symlink_to(kubectl_path(oldest_and_newest_kubectl()[-1]))
    environment = {
        **cluster.environment,
        "PATH": f"{tmp_path}/bin:{cluster.environment['PATH']}",
        "KUBECONFIG": str(Paths(cluster.state).kubeconfig),
    }
    listed = suite.expected()
    cases = {case["name"] for case in listed["case"] if case.get("run", True)}
    (tmp_path / "first").mkdir()
    found = run(suite, tmp_path / "first", environment)
    news = {name: wrong for name, wrong in found.items() if wrong and name not in cases}
    if news:  # what their own CI does too: they see what others of their tests have left
        (tmp_path / "second").mkdir()
        news = {n: w for n, w in run(suite, tmp_path / "second", environment, [*news]).items() if w}
    print(
        f"{len(found)} tests, {sum(map(bool, found.values()))} failed, {len(cases)} are expected to"
    )
    assert not news, "\n\n".join(["not on the list:", *(f"{n}\n{w}" for n, w in news.items())])
    stale = [name for name in cases if not found.get(name)]
    assert not stale, "\n".join(["passed, or did not run: take it off the list", *stale])
    assert len(found) == listed["tests"], "the suite has changed: read its list again"


def test_a_repository_is_read_at_its_commit_whatever_is_checked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone, taken = tmp_path / "clones/client", tmp_path / "taken"
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    clone.mkdir(parents=True)
    taken.mkdir()
    (clone / "e2e").mkdir()
    (clone / "other").touch()
    for text in ("then", "now"):
        (clone / "e2e/test_it.py").write_text(text)
        for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", text]):
            subprocess.run([*git, *command], check=True)
    repository = Repository("example/client", "HEAD~1", ["e2e"])
    monkeypatch.delenv("TRAINYARD_SUITES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="TRAINYARD_SUITES does not say"):
        repository.extract(taken)
    monkeypatch.setenv("TRAINYARD_SUITES", str(tmp_path / "clones"))
    with pytest.raises(pytest.skip.Exception, match="no clone that has 1234567"):
        Repository("example/client", "1234567", ["e2e"]).extract(taken)
    repository.extract(taken)
    assert [file.name for file in taken.iterdir()] == ["e2e"]
    assert (taken / "e2e/test_it.py").read_text() == "then"


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_every_case_is_listed_once_with_a_reason(suite: Suite) -> None:
    cases = suite.expected()["case"]
    assert len({case["name"] for case in cases}) == len(cases)
    for case in cases:
        assert case["reason"].split(": ")[0] in {"absent", "bent", "theirs"}, case
        assert case["name"].startswith(tuple(suite.tests)), case
