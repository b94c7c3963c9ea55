"""Layouts that are chosen by the time of reshards on a machine."""

import pytest

from shardir.cost.communication import list_collectives
from shardir.errors import MachineError
from shardir.passes.pipeline import Pipeline
from shardir.text.parser import parse

PRODUCT = """
mesh @mesh = [data=8, model=8]

func @f(
  %x: f32[512@-, 4096@model],
  %w: f32[4096@data, 576@-],
) -> (f32[512@-, 576@-]) {
  %y = dot(%x, %w, dims="bi,io->bo") : f32[512@-, 576@-]
  return %y
}
"""


def permuted(options: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the collectives of the product, and the axes along which they communicate."""
    passes = f"propagate,reshard{options},partition,cse,dce"
    module = Pipeline.parse(passes)(parse(PRODUCT))
    return [(each.kind, each.axes) for each in list_collectives(module)]


def test_a_machine_decides_by_time_instead_of_bytes() -> None:
    """Of both operands, `x` has fewer bytes. With `w` moved, the all-reduce runs inside of a
    node."""
    assert permuted("") == [("collective-permute", ("model",)), ("all-reduce", ("data",))]
    assert permuted("{machine=a100x8}") == [
        ("collective-permute", ("data",)),
        ("all-reduce", ("model",)),
    ]


def test_an_unknown_machine_is_an_error() -> None:
    with pytest.raises(MachineError, match="there is no machine 'a100x9'; did you"):
        permuted("{machine=a100x9}")
