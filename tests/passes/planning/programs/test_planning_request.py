"""The options of passes that requests of plans depend on."""

import pytest

from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.programs.planning_request import pads_arguments


@pytest.mark.parametrize(
    ("passes", "pads"),
    [
        (DEFAULT_PIPELINE, False),
        ("propagate{border=uneven},reshard,partition", True),
        ("reshard,partition", False),
    ],
)
def test_arguments_are_padded_if_propagation_shards_them_unevenly(passes: str, pads: bool) -> None:
    assert pads_arguments(Pipeline.parse(passes)) is pads
