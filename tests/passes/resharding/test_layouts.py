"""Operations with incompatible operand shardings use the cheapest sharding."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from shardir.ir.module import Module
from shardir.passes import Pipeline, Reshard
from shardir.passes.pipeline import SHARDY_PIPELINE
from shardir.passes.resharding.cost import reshard_cost, sharding_or_unsharded
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
    assert body(cheapest)[-1] == "%c = select(%p.sharded, %a.sharded, %b) : f32[8@-, 64@y]"


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


def test_the_exact_pipeline_does_not_optimize() -> None:
    assert "sink-reductions" not in SHARDY_PIPELINE
    module = Pipeline.parse(SHARDY_PIPELINE)(parse(MESH + VOTE))
    assert module.main.spmd is not None


@pytest.mark.parametrize("sample", few_of_each(SAMPLES), ids=lambda sample: sample.id)
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
    return sum(
        reshard_cost(
            sharding_or_unsharded(op.operands[0], mesh.name),
            sharding_or_unsharded(op.result, mesh.name),
            op.result.type,
        )[0]
        for op in module.main.body.walk()
        if op.name == "reshard"
    )
