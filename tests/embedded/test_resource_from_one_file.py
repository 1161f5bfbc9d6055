"""A resource is one file: one of this test's own, in another folder, used with real kubectl."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.embedded.kubectl import Cluster, running_cluster
from tests.tools import kubectl_path, oldest_and_newest_kubectl
from trainyard.composition.kinds_extension import EXTENSION, RESOURCES
from trainyard.embedded.cluster_extension import Extension
from trainyard.embedded.resources.resource_table import Resources

FILE = '''
"""Widgets, which come in three sizes."""

from trainyard.kube.resources import Resource
from trainyard.embedded.api_errors import StatusCause
from trainyard.embedded.resources.printer_columns import AGE, NAME, Column, at
from trainyard.embedded.resources.resource import Object, Present, Served

_SIZES = ("small", "medium", "large")


class _Widgets(Served):
    def prepare_create(self, obj: Object, present: Present) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("size", "medium")
        self._check(obj)
        spec["number"] = 1 + max((other["spec"]["number"] for other in present()), default=0)

    def prepare_update(self, new: Object, old: Object, present: Present) -> None:
        new["spec"]["number"] = old["spec"]["number"]
        self._check(new)

    def _check(self, widget: Object) -> None:
        size = widget["spec"]["size"]
        if size not in _SIZES:
            raise self.refused(widget, StatusCause("spec.size", f"Unsupported value: {size!r}"))

    def schema(self) -> Object:
        size = {"type": "string", "description": "How big it is."}
        spec = {"type": "object", "properties": {"size": size}}
        return {"type": "object", "properties": {"spec": spec}}


SERVED = _Widgets(
    Resource("example.dev", "v1", "widgets", "Widget"),
    short_names=("wd",),
    printer_columns=(
        NAME,
        Column("Size", at("spec.size")),
        AGE,
        Column("Number", at("spec.number"), type="integer", priority=1),
    ),
    selectable=frozenset({"spec.size"}),
    custom=True,
)
'''


def widget(name: str, size: str = "") -> str:
    spec = f"size: {size}" if size else ""
    head = "apiVersion: example.dev/v1\nkind: Widget\n"
    return f"{head}metadata: {{name: {name}}}\nspec: {{{spec}}}\n"


@pytest.fixture(params=oldest_and_newest_kubectl())
async def kubectl(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    folder = tmp_path / "resources"
    folder.mkdir()
    (folder / "widgets.py").write_text(FILE)
    resources = Resources(folder, extension=EXTENSION)
    async with running_cluster(kubectl_path(request.param), tmp_path, resources) as made:
        yield made


async def test_a_resource_comes_from_one_file(kubectl: Cluster) -> None:
    assert "wd" in await kubectl("api-resources", "--api-group=example.dev")
    await kubectl("create", "-f", "-", stdin=widget("first"))
    await kubectl("apply", "-f", "-", stdin=widget("second", "large"))

    header, *rows = (await kubectl("get", "wd")).splitlines()
    assert header.split() == ["NAME", "SIZE", "AGE"]
    assert [row.split()[:2] for row in rows] == [["first", "medium"], ["second", "large"]]
    header, *rows = (await kubectl("get", "widgets", "-o", "wide")).splitlines()
    assert header.split() == ["NAME", "SIZE", "AGE", "NUMBER"]
    assert [row.split()[-1] for row in rows] == ["1", "2"]

    chosen = await kubectl("get", "wd", "--field-selector=spec.size=large", "-o", "name")
    assert chosen == "widget.example.dev/second\n"
    assert "field label not supported" in await kubectl(
        "get", "wd", "--field-selector=spec.number=1", fails=True
    )
    assert "How big it is." in await kubectl("explain", "widget.spec.size")


async def test_its_strategy_is_asked_at_each_write(kubectl: Cluster) -> None:
    refusal = await kubectl("create", "-f", "-", stdin=widget("odd", "huge"), fails=True)
    assert '"odd" is invalid: spec.size: Unsupported value' in refusal
    await kubectl("apply", "-f", "-", stdin=widget("one", "small"))
    assert "configured" in await kubectl("apply", "-f", "-", stdin=widget("one", "large"))
    refusal = await kubectl("apply", "-f", "-", stdin=widget("one", "huge"), fails=True)
    assert "Unsupported value: 'huge'" in refusal
    assert await kubectl("get", "wd", "one", "-o", "jsonpath={.spec}") == (
        '{"number":1,"size":"large"}'
    )
    await kubectl("delete", "wd", "one")
    assert kubectl.registry.list("widgets.example.dev") == []


async def test_it_goes_with_its_namespace(kubectl: Cluster) -> None:
    await kubectl("create", "namespace", "blue")
    await kubectl("create", "-n", "blue", "-f", "-", stdin=widget("one"))
    await kubectl("delete", "namespace", "blue", "--timeout=120s")
    assert kubectl.registry.list("widgets.example.dev") == []


def test_other_clusters_do_not_serve_it() -> None:
    assert RESOURCES.get("widgets.example.dev") is None


def test_no_two_files_serve_the_same_resource(tmp_path: Path) -> None:
    taken = FILE.replace('"example.dev", "v1", "widgets"', '"", "v1", "resourcequotas"')
    (tmp_path / "quotas.py").write_text(taken)
    with pytest.raises(ValueError, match="two rows of files of resources serve resourcequotas"):
        Resources(tmp_path).get("pods")


def test_what_is_served_has_no_alternative() -> None:
    with pytest.raises(ValueError, match="alternatives to what is not refused: pods"):
        Resources(extension=Extension(alternatives={"pods": "run a job"})).get("pods")
