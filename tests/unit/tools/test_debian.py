"""Builds from Debian's packages: what they say when they cannot, and what they go on with."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import control_plane, debian

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("tool", ["control_plane", "current_apiserver"])
def test_a_build_says_what_the_machine_lacks(tool: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", f"tools.{tool}", "build"],
        cwd=ROOT,
        env={"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == debian.LACKING
    assert done.stderr.startswith("cannot go on: apt-get, dpkg-deb")
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_a_step_that_fails_ends_the_build_and_is_named() -> None:
    with pytest.raises(SystemExit, match="failed with 1: false"):
        debian.run("false")


def test_a_build_that_ended_early_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        with debian.workshop(tmp_path, gibibytes=0) as folder:
            (folder / "half").touch()
            debian.run("false")

    with pytest.raises(SystemExit):
        fails()
    assert str(tmp_path / "build") in capsys.readouterr().err
    with debian.workshop(tmp_path, gibibytes=1 << 30) as again:  # it has its room already
        assert (again / "half").exists()
    assert not again.exists()


def test_what_does_not_fit_is_not_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(SystemExit) as ended,
        debian.workshop(tmp_path, gibibytes=1 << 30),
    ):
        pass
    assert ended.value.code == debian.LACKING
    assert f"GiB in {tmp_path}" in capsys.readouterr().err


def test_one_builds_at_a_time(tmp_path: Path) -> None:
    with debian.workshop(tmp_path, gibibytes=0):
        lock = os.open(tmp_path / "lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock)


def test_a_program_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    (made := tmp_path / "made").mkdir()
    (made / "server").write_text("whole")
    (made / "server").chmod(0o755)
    debian.keep(made / "server", tmp_path)
    assert (tmp_path / "server").read_text() == "whole"
    assert os.access(tmp_path / "server", os.X_OK)
    assert {path.name for path in tmp_path.iterdir()} == {"made", "server"}


def test_what_was_downloaded_another_day_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "old.deb").touch()
    assert not [*debian.emptied(tmp_path / "packages").iterdir()]


def test_a_control_plane_that_is_half_built_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_plane, "BUILT", tmp_path)
    for name in ("PATH", "KUBEBUILDER_ASSETS"):
        monkeypatch.setenv(name, "")
    for name in ("etcd", *control_plane.SERVERS):
        assert control_plane.find.__wrapped__() is None
        (tmp_path / name).touch(0o755)
    found = control_plane.find.__wrapped__()
    assert found is not None
    assert found.controller_manager == tmp_path / "kube-controller-manager"


def test_where_packages_come_from_is_read_as_apt_reads_it(tmp_path: Path) -> None:
    """Debian's own, in both formats, with their keys; without an entry for sources, too."""
    (parts := tmp_path / "apt" / "sources.list.d").mkdir(parents=True)
    (tmp_path / "os-release").write_text("VERSION_CODENAME=bookworm\n")
    (tmp_path / "apt" / "sources.list").write_text(
        "deb cdrom:[Debian]/ bookworm main\n"
        "deb [arch=amd64 signed-by=/a.gpg trusted=yes] http://one bookworm main contrib\n"
        "# deb http://none bookworm main\n"
        "deb http://others someone-bookworm main\n"
    )
    (parts / "debian.sources").write_text(
        "Types: deb\nURIs: http://two\nSuites: bookworm bookworm-updates\nSigned-By: /b.gpg\n\n"
        "Types: deb\nURIs: http://off\nSuites: bookworm\nEnabled: no\n"
    )
    two, one = debian.sources_of(None, tmp_path).strip().split("\n\n")
    assert two.split("\n") == [
        *("Types: deb deb-src", "URIs: http://two", "Suites: bookworm bookworm-updates"),
        "Signed-By: /b.gpg",
    ]
    assert one.split("\n") == [
        *("Types: deb deb-src", "URIs: http://one", "Suites: bookworm"),
        *("signed-by: /a.gpg", "trusted: yes", "Components: main contrib"),
    ]
    assert debian.sources_of("sid", tmp_path).count("Suites: sid\n") == 2


def test_a_source_out_of_reach_is_told_in_a_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = "Types: deb\nURIs: http://127.0.0.1:1\nSuites: none\nComponents: main\nTrusted: yes\n"
    monkeypatch.setattr(debian, "sources_of", lambda suite: entry)
    with pytest.raises(SystemExit) as ended:
        debian.Apt(tmp_path)
    assert ended.value.code == debian.LACKING
    error = capfd.readouterr().err
    assert "127.0.0.1" in error
    assert error.endswith("cannot go on: no list of packages could be had; it says above why\n")
