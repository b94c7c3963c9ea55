"""Indivisible dimensions: padding never affects results.

The reference interpreter fills the padding of arguments with NaN, the largest integers and true.
"""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir.errors import PartitionError
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.interpret.shards import assemble_shards, slice_shard
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.types import TensorType
from shardir.passes import Pipeline
from shardir.passes.resharding.planner import plan_reshard
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.op_sample import Sample
from tests.passes.op_lines import body
from tests.passes.sharded_evaluation import annotate_randomly, check_agreement, reject_the_simplest
from tests.programs.shardings import MESHES as EIGHT, shardings
from tests.programs.strategies import modules
from tests.samples import SAMPLES, few_of_each

pytestmark = pytest.mark.sample(5)

MESHES = (
    Mesh("m", (("x", 3),)),
    Mesh("m", (("x", 5),)),
    Mesh("m", (("x", 6),)),
    Mesh("m", (("x", 3), ("y", 2))),
    Mesh("m", (("x", 7),)),
)
EXAMPLES = max(settings().max_examples // 100, 1)


@given(st.data())
def test_programs_on_meshes_that_divide_no_dimension(data: st.DataObject) -> None:
    module = data.draw(modules(mesh=data.draw(st.sampled_from(MESHES))))
    annotations = annotate_randomly(data, module, lambda _: data.draw(st.booleans()))
    check_agreement(annotations, "propagate,reshard,sink-reductions,partition,cse,dce")


@pytest.mark.parametrize("sample", few_of_each(SAMPLES), ids=lambda sample: sample.id)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_every_operation_on_meshes_that_divide_no_dimension(
    sample: Sample, data: st.DataObject
) -> None:
    reject_the_simplest(data)
    mesh = data.draw(st.sampled_from(MESHES))
    module = annotate_randomly(data, Module((mesh,), (sample.function(),)), lambda _: True)
    check_agreement(module, "reshard,partition", sample.arrays())


@given(st.data())
def test_every_reshard_between_uneven_shardings(data: st.DataObject) -> None:
    """The test runs plans of every kind, with values that identify the source of each element."""
    mesh = data.draw(st.sampled_from((*MESHES, *EIGHT)))
    shape = data.draw(st.lists(st.sampled_from((1, 2, 3, 4, 5, 6, 7, 9)), min_size=1, max_size=3))
    type = TensorType(tuple(shape), data.draw(st.sampled_from(("i32", "f32", "bool", "c64"))))
    pending = type.dtype in ("i32", "f32", "c64")
    source = data.draw(shardings(mesh, type.shape, uneven=True, pending=pending))
    target = data.draw(shardings(mesh, type.shape, uneven=True))
    a = Value(type, "a", source)
    b = Value(type, "b", target)
    move = Op(OPS["reshard"], (a,), (b,))
    module = Module((mesh,), (Function("f", Block((a,), (move,), (b,)), (None,)),))
    check_agreement(module, "partition")


MESH = "mesh @m = [x=4, y=2]\n\n"


def run_partition(text: str, pipeline: str = "reshard,partition,dce") -> Module:
    module = Pipeline.parse(pipeline)(parse(MESH + text))
    verify(module)
    assert str(parse(str(module))) == str(module)
    return module


def test_padding_of_a_reduced_dimension_is_replaced() -> None:
    module = run_partition("""\
func @f(
  %a: f32[5@x],
) -> (f32[]) {
  %s = max(%a, dims=[0]) : f32[]
  return %s
}
""")
    assert body(module) == [
        "%0 = iota(dim=0) : i32[2]",
        "%a.index = axis-index(axes=[x]) : i32[]",
        "%1 = constant(value=2) : i32[]",
        "%a.start = mul(%a.index, %1) : i32[]",
        "%2 = broadcast(%a.start, dims=[]) : i32[2]",
        "%3 = add(%0, %2) : i32[2]",
        "%4 = constant(value=5) : i32[2]",
        "%5 = lt(%3, %4) : bool[2]",
        "%6 = broadcast(%5, dims=[0]) : bool[2]",
        "%7 = constant(value=-inf) : f32[2]",
        "%8 = select(%6, %a, %7) : f32[2]",
        "%s.partial = max(%8, dims=[0]) : f32[]",
        "%s = all-reduce(%s.partial, axes=[x], op=max) : f32[]",
    ]
    assert module.main.body.ops[-3].why == "the padding of %a must not contribute"


def test_padding_of_both_operands_of_a_product_is_replaced() -> None:
    module = run_partition("""\
func @f(
  %a: f32[5@-, 3@y],
  %b: f32[3@y, 4@x],
) -> (f32[5@-, 4@x]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[5@-, 4@x]
  return %c
}
""")
    assert sum(op.name == "select" for op in module.main.body.ops) == 2
    check_agreement(parse(MESH + """\
func @f(
  %a: f32[5@-, 3@y],
  %b: f32[3@y, 4@x],
) -> (f32[5@-, 4@x]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[5@-, 4@x]
  return %c
}
"""), "reshard,partition,cse,dce")  # fmt: skip


def test_elementwise_operations_compute_on_padding() -> None:
    module = run_partition("""\
func @f(
  %a: f32[5@x],
) -> (f32[5@x]) {
  %b = exp(%a) : f32[5@x]
  return %b
}
""")
    assert body(module) == ["%b = exp(%a) : f32[2]"]


@pytest.mark.parametrize("size", [2, 5, 7, 9])
def test_shards_past_the_end_are_empty(size: int) -> None:
    """5 over 4 devices is 2, 2, 1 and 0; 2 over 4 is 1, 1, 0 and 0."""
    mesh = Mesh("m", (("x", 4),))
    sharding = Sharding.of("m", [(Axis("x", 1, 4),)])
    whole = np.arange(size, dtype=np.int32)
    shards = [slice_shard(whole, sharding, mesh, device) for device in range(4)]
    assert {shard.shape for shard in shards} == {(-(-size // 4),)}
    np.testing.assert_array_equal(
        assemble_shards(shards, TensorType((size,), "i32"), sharding, mesh), whole
    )


def test_reshards_of_an_uneven_dimension_need_not_gather_it() -> None:
    """The path over another sharded dimension keeps intermediate values sharded."""
    x, y = Axis("x", 1, 4), Axis("y", 1, 2)
    type = TensorType((5, 64), "f32")
    steps = plan_reshard(Sharding.of("m", [(x,), ()]), Sharding.of("m", [(y,), ()]), type)
    whole = plan_reshard(Sharding.of("m", [(x,), ()]), Sharding.of("m", [(), ()]), type)
    received = [sum(step.nbytes for step in plan) for plan in (steps, whole)]
    assert received == [896, 1344]


def test_loops_carry_uneven_values() -> None:
    text = """\
func @f(
  %h: f32[5@x, 3@y],
) -> (f32[5@x, 3@y], f32[]) {
  %out = scan(%h, carries=1, length=3, reverse=false) : f32[5@x, 3@y] {
    (%c: f32[5@x, 3@y]) =>
    %s = sum(%c, dims=[0]) : f32[3@y]
    %w = broadcast(%s, dims=[1]) : f32[5@x, 3@y]
    %d = div(%c, %w) : f32[5@x, 3@y]
    yield %d
  }
  %t = prod(%out, dims=[0, 1]) : f32[]
  return %out, %t
}
"""
    check_agreement(parse(MESH + text), "reshard,partition,cse,dce")
    assert "scan" in str(run_partition(text))


def test_the_error_names_dimension_size_and_axes() -> None:
    with pytest.raises(PartitionError, match="dimension 0 of %a has size 5"):
        run_partition("func @f(\n  %a: f32[5@x],\n) -> (f32[5]) {\n  return %a\n}\n",
                    "reshard{uneven=error}")  # fmt: skip


def test_arguments_have_worst_case_padding() -> None:
    module = parse(MESH + "func @f(\n  %a: f32[5@x],\n) -> (f32[5]) {\n  return %a\n}\n")
    (a,) = random_arguments(module, whole=True)
    program = Pipeline.parse("reshard,partition")(module)
    (got,) = run(program, [a])
    np.testing.assert_array_equal(got, a)
    sharding = Sharding.of("m", [(Axis("x", 1, 4),)])
    shards = [slice_shard(a, sharding, module.meshes[0], device) for device in range(8)]
    assert np.isnan(shards[-1]).all()
