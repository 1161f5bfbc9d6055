"""What a program says of a cluster is what the command line is told."""

from __future__ import annotations

import sys
from typing import Any

import click
import pytest

import trainyard
from trainyard.api.clusters import ClusterOptions, _words, shape_of
from trainyard.cli.options import cluster_options
from trainyard.composition.cluster_shape import ClusterShape

OPTIONS: list[ClusterOptions] = [
    {},
    {"network": "none"},
    {"network": "open", "allowed_ports": [5432, 8080]},
    {"is_strict": True, "isolation": "plain", "passed": ["PATH", "B_*"]},
    {"resources": {"nvidia.com/gpu": "8"}, "allowed_ports": [1]},
    {"passed": "HF_*", "allowed_ports": 8080, "images": ("torch*", sys.prefix)},
    {"passed": iter(["PATH", "B_*"]), "images": [("a", sys.prefix), ("b", sys.prefix)]},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_words_say_what_was_asked_for(options: ClusterOptions) -> None:
    shapes: list[ClusterShape] = []

    @click.command()
    @cluster_options
    def command(options: ClusterShape) -> None:
        shapes.append(options)

    shape = shape_of(options)
    command.main([*_words(shape)], standalone_mode=False)
    (found,) = shapes
    assert (found.network, found.allowed_ports) == (shape.network, shape.allowed_ports)
    assert (found.is_strict, found.isolation) == (shape.is_strict, shape.isolation)
    assert (found.passed, found.resources) == (shape.passed, shape.resources)
    assert found.images == shape.images


def test_one_stands_for_several() -> None:
    shape = shape_of({"passed": "HF_*", "allowed_ports": 8080, "images": ("torch*", "/envs/a")})
    assert (shape.passed, shape.allowed_ports) == (("HF_*",), (8080,))
    assert shape.images == (("torch*", "/envs/a"),)


@pytest.mark.parametrize("images", ["a=/envs/a", {"a": "/envs/a"}, [("a", "b", "c")], [1], 1])
def test_images_that_are_no_pairs_are_refused(images: Any) -> None:
    with pytest.raises(trainyard.CommandError, match="they are pairs of a pattern and an environm"):
        trainyard.Client(options={"images": images})
