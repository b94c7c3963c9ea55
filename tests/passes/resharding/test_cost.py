"""The cost of reshards: layouts that are chosen by their time on a machine."""

import pytest
from hypothesis import given, strategies as st

from shardir import ops
from shardir.cost.communication import list_collectives
from shardir.errors import MachineError, PipelineError
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.types import TensorType
from shardir.passes.pipeline import Pipeline
from shardir.passes.resharding.cost import reshard_cost
from shardir.text.parser import parse
from tests.programs.shardings import MESHES, shardings

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


@pytest.mark.parametrize("step", ["reshard{machine=a100x9}", "remat{budget=1GiB,machine=a100x9}"])
def test_an_unknown_machine_is_an_error_without_a_mesh_too(step: str) -> None:
    program = parse("func @f(%x: f32[4]) -> (f32[4]) {\n  return %x\n}")
    with pytest.raises(MachineError, match="there is no machine 'a100x9'; did you"):
        Pipeline.parse(step)(program)


def test_layouts_of_shardy_have_no_machine() -> None:
    with pytest.raises(PipelineError) as caught:
        permuted("{layouts=shardy,machine=a100x8}")
    assert str(caught.value) == (
        "reshard has layouts=shardy, which compare no costs, and machine=a100x8; leave one of them "
        "out"
    )


def test_a_partitioned_program_has_no_reshards_to_compare() -> None:
    """The pipeline that the error states runs."""
    with pytest.raises(PipelineError) as caught:
        Pipeline.parse("default,reshard{machine=a100x8}")(parse(PRODUCT))
    start, _, steps = str(caught.value).partition("default pipeline: ")
    assert start == (
        "@f has been partitioned, and reshard{machine=a100x8} decides before; write it instead of "
        "the step reshard of the "
    )
    assert Pipeline.parse(steps)(parse(PRODUCT)).main.spmd


@given(st.data())
def test_the_cost_of_a_reshard_is_what_its_collectives_send(data: st.DataObject) -> None:
    """Padding of uneven shards and quotients that are rounded up count too."""
    mesh = data.draw(st.sampled_from(MESHES))
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    type = TensorType(shape, data.draw(st.sampled_from(["bool", "f32"])))
    source = data.draw(shardings(mesh, shape, uneven=True, pending=data.draw(st.booleans())))
    target = data.draw(shardings(mesh, shape, uneven=True))
    x, y = Value(type, "x", source), Value(type, "y", target)
    body = Block((x,), (Op(ops.reshard, (x,), (y,), {}),), (y,))
    module = Module((mesh,), (Function("f", body, (target,)),))
    sent = [each.sent for each in list_collectives(Pipeline.parse("partition,dce")(module))]
    assert reshard_cost(source, target, type) == (sum(sent), len(sent))
