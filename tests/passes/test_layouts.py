"""Layouts: an operation whose tensors do not fit together runs where the moves send least."""

from hypothesis import given, settings, strategies as st

from shardir.ir import Module
from shardir.passes import Pipeline, Reshard
from shardir.passes.pipeline import EXACT
from shardir.passes.prices import place_of, price
from shardir.text.parser import parse
from tests.passes.test_agreement import annotated, must_agree
from tests.passes.test_delay_sums import body
from tests.strategies import modules

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


def test_the_cheapest_tensor_leads() -> None:
    shardy = Reshard(layouts="shardy")(parse(MESH + VOTE))
    cheapest = Reshard()(parse(MESH + VOTE))
    assert received(shardy) >= received(cheapest)
    assert body(cheapest)[-1] == "%c = select(%p.cut, %a.cut, %b) : f32[8@-, 64@y]"


def test_the_exact_pipeline_improves_on_nothing() -> None:
    assert "delay-sums" not in EXACT
    module = Pipeline.parse(EXACT)(parse(MESH + VOTE))
    assert module.main.spmd is not None


@settings(max_examples=30)
@given(st.data())
def test_moves_never_send_more(data: st.DataObject) -> None:
    module = annotated(data, data.draw(modules()), lambda _: True)
    assert received(Reshard()(module)) <= received(Reshard(layouts="shardy")(module))


@settings(max_examples=30)
@given(st.data())
def test_the_exact_pipeline_keeps_the_meaning(data: st.DataObject) -> None:
    module = annotated(data, data.draw(modules()), lambda _: True)
    must_agree(module, EXACT.removeprefix("propagate,"))


def received(module: Module) -> int:
    """Bytes that each device receives; a `while` counts once."""
    (mesh,) = module.meshes
    return sum(
        price(place_of(op.operands[0], mesh.name), place_of(op.result, mesh.name),
              op.result.type)[0]
        for op in module.main.body.walk()
        if op.name == "reshard"
    )  # fmt: skip
