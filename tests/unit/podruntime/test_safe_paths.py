"""Paths in folders that somebody else may write: nothing outside is ever opened or made."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.podruntime import syscalls
from trainyard.podruntime.filesystem import safe_paths

_NAMES = ("a", "b", "c")
_LINKS = (
    "a", "b/c", "../a", "..", "../../..", "/", "/a", "/b/../c", "../outside/secret", "../outside",
    "{outside}", "{outside}/new", "/proc/self/root", "/proc/self/cwd", ".", "missing/a",
    "a/../../b",
)  # fmt: skip
_PATHS = st.lists(st.sampled_from((*_NAMES, "..", ".", "", "new")), min_size=1, max_size=5).map(
    "/".join
)
# What is at each place of a small tree: nothing, a folder, a file, or a link.
_TREES = st.dictionaries(
    st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3).map("/".join),
    st.one_of(st.just("folder"), st.just("file"), st.sampled_from(_LINKS).map("link {}".format)),
    max_size=6,
)


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[int]:
    fd = os.open(path, os.O_PATH)
    try:
        yield fd
    finally:
        os.close(fd)


def _plant(volume: str, outside: str, tree: dict[str, str]) -> None:
    for place, what in sorted(tree.items()):
        path = os.path.join(volume, place)
        with contextlib.suppress(OSError):  # below a file, or where another lies already
            if os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if what == "folder":
                os.mkdir(path)
            elif what == "file":
                Path(path).touch(exist_ok=False)
            else:
                os.symlink(what[5:].format(outside=outside), path)


def _contents(folder: str) -> list[tuple[str, list[str], list[str]]]:
    return sorted((where, sorted(dirs), sorted(files)) for where, dirs, files in os.walk(folder))


def _outcome(operation: Callable[..., int], fd: int, volume: str, *arguments: str) -> object:
    """Where it led, as the kernel says it, or the error's number."""
    try:
        found = operation(fd, *arguments)
    except OSError as error:
        return error.errno
    try:
        place = os.readlink(safe_paths.proc_path(found))
        assert f"{place}/".startswith(f"{volume}/"), place
        return place
    finally:
        os.close(found)


@pytest.mark.parametrize(
    "within", [safe_paths.AS_ROOT, safe_paths.BENEATH], ids=["as-root", "beneath"]
)
@given(tree=_TREES, path=_PATHS)
def test_no_tree_of_links_leads_out_of_a_volume(
    within: int, tree: dict[str, str], path: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        volume, outside = f"{folder}/volume", f"{folder}/outside"
        os.mkdir(volume)
        os.mkdir(outside)
        Path(f"{outside}/secret").touch()
        _plant(volume, outside, tree)
        before = _contents(outside), os.listdir(folder)
        with _opened(volume) as fd:
            by_kernel = _outcome(safe_paths.find, fd, volume, path, within)
            by_walk = _outcome(safe_paths.walk, fd, volume, path, within)
            assert by_kernel == by_walk
            made = _outcome(safe_paths.make, fd, volume, path, within)
            if isinstance(by_kernel, str):
                assert made == by_kernel
        assert (_contents(outside), os.listdir(folder)) == before


_REAL = ["a", "a/", "a//b", "./a", "a/..", "link", "link/b", "no/x", ".", "no", "a/no/x/y"]
_REAL += ["link/no/x", "nowhere", "nowhere/x", "file/x", "a/b/link/no", "circle", "circle/x"]


@pytest.mark.parametrize("path", _REAL)
def test_a_real_path_is_that_of_the_standard_library(tmp_path: Path, path: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "a" / "b" / "link").symlink_to("..")
    (tmp_path / "nowhere").symlink_to("a/none")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").touch()
    assert safe_paths.real_path(f"{tmp_path}/{path}") == os.path.realpath(f"{tmp_path}/{path}")


def test_what_is_made_is_there_and_has_the_mode_asked_for(tmp_path: Path) -> None:
    with _opened(tmp_path) as fd:
        tmp_path.chmod(0o777)
        os.close(safe_paths.make(fd, "a/b", safe_paths.BENEATH, copies_owner=True))
        os.close(safe_paths.make(fd, "a/file", safe_paths.AS_ROOT, directory=False))
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "a" / "b").is_dir()
    assert (tmp_path / "a" / "file").is_file()


def test_a_link_to_what_is_missing_is_made_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "resolv.conf").symlink_to("/run/resolve/stub.conf")
    with _opened(tmp_path) as fd:
        os.close(safe_paths.make(fd, "/etc/resolv.conf", safe_paths.AS_ROOT, directory=False))
    assert (tmp_path / "run" / "resolve" / "stub.conf").is_file()


@pytest.mark.parametrize("is_known", [True, False], ids=["kernel", "walk"])
def test_a_place_is_reached_without_any_link_or_not_at_all(
    tmp_path: Path, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_known:
        _forget_openat2(monkeypatch)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    os.close(safe_paths.open_without_links(str(tmp_path / "folder")))
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        safe_paths.open_without_links(str(tmp_path / "link"))


def test_on_an_old_kernel_the_walk_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _forget_openat2(monkeypatch)
    (tmp_path / "out").symlink_to("/etc")
    with _opened(tmp_path) as fd:
        os.close(safe_paths.make(fd, "a/b", safe_paths.BENEATH))
        os.close(safe_paths.find(fd, "a/b", safe_paths.BENEATH))
        with pytest.raises(OSError, match="leaves the folder"):
            safe_paths.find(fd, "out/passwd", safe_paths.BENEATH)


def _forget_openat2(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(syscalls, "openat2", unknown)


def test_a_folder_that_turns_into_a_link_at_any_moment_leads_nowhere(tmp_path: Path) -> None:
    """The race of CVE-2021-25741: a check beforehand would be outrun."""
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    volume.mkdir()
    outside.mkdir()
    (volume / "folder").mkdir()
    (volume / "link").symlink_to(outside)
    over = threading.Event()
    libc = ctypes.CDLL(None)
    places = [os.fsencode(volume / name) for name in ("folder", "link")]

    def swap() -> None:
        while not over.is_set():
            libc.renameat2(-100, places[0], -100, places[1], 2)  # RENAME_EXCHANGE

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        with _opened(volume) as fd:
            for number in range(1000):
                for operation in (
                    safe_paths.make,
                    lambda *a: safe_paths.walk(*a, maker=safe_paths.Maker()),
                ):
                    with contextlib.suppress(OSError):
                        os.close(operation(fd, f"folder/new-{number}", safe_paths.BENEATH))
    finally:
        over.set()
        swapper.join()
    assert not list(outside.iterdir())


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "out").symlink_to("/etc")
    before = os.listdir("/proc/self/fd")
    with _opened(tmp_path) as fd:
        for path in ("loop", "out", "missing", "a/b/c", "../../x"):
            with contextlib.suppress(OSError):
                os.close(safe_paths.walk(fd, path, safe_paths.BENEATH))
            with contextlib.suppress(OSError):
                os.close(safe_paths.make(fd, path, safe_paths.AS_ROOT))
    assert os.listdir("/proc/self/fd") == before
