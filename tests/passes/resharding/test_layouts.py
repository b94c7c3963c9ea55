"""Operations with incompatible operand shardings use the cheapest sharding."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from shardir.ir.module import Block, Module, Op
from shardir.passes import Pipeline, Reshard
from shardir.passes.pipeline import SHARDY_PIPELINE
from shardir.passes.resharding.align import partitioning_rule
from shardir.passes.resharding.cost import reshard_cost, sharding_or_unsharded
from shardir.passes.resharding.layouts import exchanged_bytes
from shardir.text.parser import parse
from tests.op_sample import Sample
from tests.passes.op_lines import body
from tests.passes.sharded_evaluation import annotate_randomly, check_agreement, reject_the_simplest
from tests.programs.shardings import MESHES
from tests.programs.strategies import modules
from tests.samples import SAMPLES, few_of_each

pytestmark = pytest.mark.sample(5)

EXAMPLES = max(settings().max_examples // 100, 1)
MESH = "mesh @m = [x=4, y=2]\n\n"
VOTE = """\
func @f(
  %p: bool[8@x, 64@-],
  %a: f32[8@-, 64@-],
  %b: f32[8@-, 64@y],
) -> (f32[8@-, 64@y]) {
  %c = select(%p, %a, %b) : f32[8@-, 64@y]
  return %c
}
"""


def test_the_cheapest_layout_is_selected() -> None:
    shardy = Reshard(layouts="shardy")(parse(MESH + VOTE))
    cheapest = Reshard()(parse(MESH + VOTE))
    assert received_bytes(shardy) >= received_bytes(cheapest)
    assert "%c.before_reshard = select(%p.sharded, %a.sharded, %b.sharded) : f32[8@x, 64@y]" in (
        body(shardy)
    )
    assert body(cheapest)[-1] == "%c = select(%p.sharded, %a.sharded, %b) : f32[8@-, 64@y]"


def test_an_operation_without_reshards_that_send_data_runs_on_shards() -> None:
    """The devices exchange rows, as the result is sharded, instead of computing all of them."""
    lines = body(
        Reshard()(
            parse(
                MESH
                + """\
func @f(
  %a: f32[64@-, 64@-],
) -> (f32[64@y, 64@x]) {
  %r = reverse(%a, dims=[0]) : f32[64@y, 64@x]
  return %r
}
"""
            )
        )
    )
    assert lines[-1] == "%r = reverse(%a.sharded, dims=[0]) : f32[64@y, 64@x]"


def test_an_operation_that_runs_on_shards_as_it_is_exchanges_nothing() -> None:
    module = parse(
        f"{MESH}func @f(%a: f32[8@x, 4]) -> (f32[8, 1, 4]) {{\n"
        "  %r = reshape(%a) : f32[8@x, 1, 4]\n  return %r\n}"
    )
    (op,) = module.main.body.ops
    places = tuple(sharding_or_unsharded(value, "m") for value in op.tensors)
    assert exchanged_bytes(op, places, module.meshes[0]) == 0


def test_a_gather_inside_of_an_operation_costs_as_many_bytes_as_a_reshard() -> None:
    """Each of eight devices has one of eight elements and receives seven."""
    module = parse(
        "mesh @m = [x=8]\nfunc @f(%a: i32[8@x]) -> (i32[8], i32[8]) {\n"
        "  %v, %i = top_k(%a) : i32[8], i32[8]\n  return %v, %i\n}"
    )
    (op,) = module.main.body.ops
    places = tuple(sharding_or_unsharded(value, "m") for value in op.tensors)
    assert exchanged_bytes(op, places, module.meshes[0]) == 28


def test_the_time_of_an_exchange_counts_only_where_rows_are_exchanged() -> None:
    """On unsharded rows, the exchange of no bytes would take the latency of a collective."""
    lines = body(
        Reshard(machine="a100x8")(
            parse(
                MESH
                + """\
func @f(
  %a: f32[64@-, 16@(x, y)],
  %c: f32[],
) -> (f32[65@y, 16@x]) {
  %r = pad(%a, %c, low=[1, 0], high=[0, 0], interior=[0, 0]) : f32[65@y, 16@x]
  return %r
}
"""
            )
        )
    )
    assert lines[-1].endswith(
        "= pad(%a.sharded, %c, low=[1, 0], high=[0, 0], interior=[0, 0]) : f32[65@y, 16@x]"
    )


def test_an_operand_is_gathered_if_its_sum_is_larger() -> None:
    """The all-reduce would send twice as many bytes, though each device would compute less."""
    gathered = Reshard()(
        parse(
            MESH
            + """\
func @f(
  %a: f32[64@-, 128@x],
  %w: f32[128@-, 128@-],
) -> (f32[64@-, 128@-]) {
  %c = dot(%a, %w, dims="ik,kj->ij") : f32[64@-, 128@-]
  return %c
}
"""
        )
    )
    assert body(gathered)[-1] == '%c = dot(%a.unsharded, %w, dims="ik,kj->ij") : f32[64@-, 128@-]'


def test_a_contraction_does_not_compute_more_so_that_less_is_sent() -> None:
    """`%a` has fewer bytes than the product that is gathered."""
    module = Reshard()(
        parse(
            MESH
            + """\
func @f(
  %a: f32[64@x, 2@-],
  %b: f32[2@-, 64@-],
) -> (f32[64@-, 64@-]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[64@-, 64@-]
  return %c
}
"""
        )
    )
    assert body(module) == [
        '%c.before_reshard = dot(%a, %b, dims="ik,kj->ij") : f32[64@x, 64@-]',
        "%c = reshard(%c.before_reshard) : f32[64@-, 64@-]",
    ]


def test_a_sum_is_reduced_if_it_is_smaller() -> None:
    completed = Reshard()(
        parse(
            MESH
            + """\
func @f(
  %a: f32[64@-, 128@x],
  %w: f32[128@-, 16@-],
) -> (f32[64@-, 16@-]) {
  %c = dot(%a, %w, dims="ik,kj->ij") : f32[64@-, 16@-]
  return %c
}
"""
        )
    )
    assert body(completed)[-1] == "%c = reshard(%c.partial) : f32[64@-, 16@-]"


def test_an_operand_is_gathered_along_one_axis_if_another_shards_the_result() -> None:
    gathered = Reshard()(
        parse(
            MESH
            + """\
func @f(
  %q: f32[4@-, 64@-, 4@x, 8@y],
  %k: f32[4@-, 64@-, 4@-, 8@-],
) -> (f32[4@-, 4@x, 64@-, 64@-]) {
  %s = dot(%q, %k, dims="bqhd,bkhd->bhqk") : f32[4@-, 4@x, 64@-, 64@-]
  return %s
}
"""
        )
    )
    assert body(gathered)[-1].startswith("%s = dot(%q.sharded, %k.sharded, ")
    assert "%q.sharded = reshard(%q) : f32[4@-, 64@-, 4@x, 8@-]" in body(gathered)


def test_collectives_do_not_outweigh_twice_the_bytes() -> None:
    """One gather of the weights has 12,288 bytes, two all-to-alls have 3,072."""
    exchanged = Reshard()(
        parse(
            MESH
            + """\
func @f(
  %p: f32[4@x, 4@-, 16@-, 16@-],
  %v: f32[4@-, 16@-, 4@-, 8@x],
) -> (f32[4@-, 16@-, 4@-, 8@x]) {
  %o = dot(%p, %v, dims="bhqk,bkhd->bqhd") : f32[4@-, 16@-, 4@-, 8@x]
  return %o
}
"""
        )
    )
    assert body(exchanged) == [
        "%v.sharded = reshard(%v) : f32[4@x, 16@-, 4@-, 8@-]",
        '%o.before_reshard = dot(%p, %v.sharded, dims="bhqk,bkhd->bqhd") : '
        "f32[4@x, 16@-, 4@-, 8@-]",
        "%o = reshard(%o.before_reshard) : f32[4@-, 16@-, 4@-, 8@x]",
    ]


def test_an_operation_that_exchanges_rows_runs_elsewhere_if_that_sends_less() -> None:
    """Both halves of a rotary embedding are slices of a sharded dimension."""
    sliced = Reshard()(
        parse(
            MESH
            + """\
func @f(
  %x: f32[16@-, 16@x],
) -> (f32[16@x, 8@-]) {
  %h = slice(%x, starts=[0, 8], strides=[1, 1]) : f32[16@x, 8@-]
  return %h
}
"""
        )
    )
    assert body(sliced) == [
        "%x.sharded = reshard(%x) : f32[16@x, 16@-]",
        "%h = slice(%x.sharded, starts=[0, 8], strides=[1, 1]) : f32[16@x, 8@-]",
    ]


def test_an_operation_exchanges_rows_where_that_sends_less() -> None:
    sliced = Reshard()(
        parse(
            MESH
            + """\
func @f(
  %x: f32[64@x, 128@-],
) -> (f32[63@-, 128@x]) {
  %h = slice(%x, starts=[1, 0], strides=[1, 1]) : f32[63@-, 128@x]
  return %h
}
"""
        )
    )
    assert len(body(sliced)) == 2


def test_the_exact_pipeline_does_not_optimize() -> None:
    assert "sink-reductions" not in SHARDY_PIPELINE
    module = Pipeline.parse(SHARDY_PIPELINE)(parse(MESH + VOTE))
    assert module.main.spmd is not None


def has_dependent_operations(block: Block) -> bool:
    """Return whether an operation of a block uses a result that another one computes."""
    computed = {value for op in block.ops if op.operands for value in op.results}
    return any(value in computed for op in block.ops for value in op.operands)


SINGLE_OPERATIONS = [
    sample
    for sample in few_of_each(SAMPLES)
    if not sample.spec.blocks
    or not any(
        has_dependent_operations(b) for op in sample.function().body.walk() for b in op.blocks
    )
]
"""Samples of one operation, whose blocks contain no operation that uses a result of another one."""


@pytest.mark.parametrize("sample", SINGLE_OPERATIONS, ids=lambda sample: sample.id)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_reshards_of_an_operation_never_send_more(sample: Sample, data: st.DataObject) -> None:
    """Several operations together may send more, where Shardy's choices share a reshard by
    chance.
    """
    reject_the_simplest(data)
    mesh = data.draw(st.sampled_from(MESHES))
    module = annotate_randomly(data, Module((mesh,), (sample.function(),)), lambda _: True)
    # Its result has no other reshard either.
    function = module.main
    kept = tuple(value.sharding for value in function.body.returns)
    module = replace(module, functions=(replace(function, result_shardings=kept),))
    assert received_bytes(Reshard()(module)) <= received_bytes(Reshard(layouts="shardy")(module))


@settings(max_examples=30)
@given(st.data())
def test_the_exact_pipeline_keeps_results(data: st.DataObject) -> None:
    module = annotate_randomly(data, data.draw(modules()), lambda _: True)
    check_agreement(module, SHARDY_PIPELINE.removeprefix("propagate,"))


def received_bytes(module: Module) -> int:
    """Return the bytes that each device receives; a `while` counts once."""
    (mesh,) = module.meshes

    def received_by(op: Op) -> int:
        places = tuple(sharding_or_unsharded(value, mesh.name) for value in op.tensors)
        if op.name == "reshard":
            return reshard_cost(*places, op.result.type)[0]
        return 0 if partitioning_rule(op) is None else exchanged_bytes(op, places, mesh)

    return sum(map(received_by, module.main.body.walk()))
