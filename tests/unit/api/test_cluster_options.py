"""What a program says of a cluster is what the command line is told."""

from __future__ import annotations

import click
import pytest

from trainyard.api.clusters import ClusterOptions, _words, shape_of
from trainyard.cli.options import cluster_options
from trainyard.composition.cluster_shape import ClusterShape

OPTIONS: list[ClusterOptions] = [
    {},
    {"network": "none"},
    {"network": "open", "allowed_ports": [5432, 8080]},
    {"is_strict": True, "isolation": "plain", "passed": ["PATH", "B_*"]},
    {"resources": {"nvidia.com/gpu": "8"}, "allowed_ports": [1]},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_words_say_what_was_asked_for(options: ClusterOptions) -> None:
    told: list[ClusterShape] = []

    @click.command()
    @cluster_options
    def command(options: ClusterShape) -> None:
        told.append(options)

    command.main([*_words(options)], standalone_mode=False)
    shape = shape_of(options)
    (found,) = told
    assert (found.network, found.allowed_ports) == (shape.network, shape.allowed_ports)
    assert (found.is_strict, found.isolation) == (shape.is_strict, shape.isolation)
    assert (found.passed, found.resources) == (shape.passed, shape.resources)
