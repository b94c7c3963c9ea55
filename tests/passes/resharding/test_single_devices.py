"""Operations on single devices run there after `insert-explicit-reshards`, as in Shardy."""

import numpy as np
import pytest

from shardir.errors import PartitionError
from shardir.interpret.interpreter import run
from shardir.ir.module import Module
from shardir.passes import InsertExplicitReshards
from shardir.passes.pipeline import Pipeline
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.passes.op_lines import reasons

MESHES = "mesh @m = [x=2]\nmesh @one = [] devices=[0]\nmesh @two = [] devices=[1]\n\n"
PROGRAM = f"""\
{MESHES}func @main(
  %a: f32[8@x, 4@-],
) -> (f32[8@x, 4@-], f32[8@-]) {{
  %s = sin(%a) : f32[8@-, 4@-] on @one
  %c = cos(%s) : f32[8@-, 4@-] on @two
  %r = add(%c, %a) : f32[8@x, 4@-]
  %n = sum(%s, dims=[1]) : f32[8@-]
  return %r, %n
}}
"""


def lines(module: Module) -> list[str]:
    """Return the operations of the function, one per line."""
    return [
        line.strip() for line in str(module).splitlines() if line.startswith("  %") and "=" in line
    ]


def test_operands_come_to_the_device_and_results_leave_it() -> None:
    """Each use of a value has a reshard of its own, and a result is replicated over the mesh."""
    module = InsertExplicitReshards()(parse(PROGRAM))
    verify(module)

    assert lines(module) == [
        "%a.unsharded = reshard(%a) : f32[8@-, 4@-] on @one",
        "%s.before_reshard = sin(%a.unsharded) : f32[8@-, 4@-] on @one",
        "%s = reshard(%s.before_reshard) : f32[8@-, 4@-]",
        "%s.unsharded = reshard(%s) : f32[8@-, 4@-] on @two",
        "%c.before_reshard = cos(%s.unsharded) : f32[8@-, 4@-] on @two",
        "%c = reshard(%c.before_reshard) : f32[8@-, 4@-]",
        "%c.sharded = reshard(%c) : f32[8@x, 4@-]",
        "%r = add(%c.sharded, %a) : f32[8@x, 4@-]",
        "%n = sum(%s, dims=[1]) : f32[8@-]",
    ]
    assert reasons(module)[0] == "operand 0 of %s = sin needs the device of @one"


def test_the_program_computes_the_same_when_every_device_computes_it() -> None:
    module = parse(PROGRAM)
    partitioned = Pipeline.parse("insert-explicit-reshards,reshard,partition")(module)
    args = [np.arange(32, dtype=np.float32).reshape(8, 4)]
    for got, want in zip(run(partitioned, args), run(module, args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_other_results_of_such_an_operation_are_resharded_to_their_shardings() -> None:
    """Tokens are on no device."""
    call = 'opaque(%a, %t, operation="x.call", head="x.call %, %", attributes="", types=": ()")'
    text = f"""\
{MESHES}func @main(
  %a: f32[8@x],
  %t: token[],
) -> (f32[8@-], f32[8@x], token[]) {{
  %p, %q, %u = {call} : f32[8@-] on @one, f32[8@x], token[]
  return %p, %q, %u
}}
"""
    assert lines(InsertExplicitReshards()(parse(text))) == [
        "%a.unsharded = reshard(%a) : f32[8@-] on @one",
        "%p.before_reshard, %q.before_reshard, %u = "
        f"{call.replace('%a', '%a.unsharded')} : f32[8@-] on @one, f32[8@-] on @one, token[]",
        "%p = reshard(%p.before_reshard) : f32[8@-]",
        "%q = reshard(%q.before_reshard) : f32[8@x]",
    ]


def test_results_on_two_devices_are_refused() -> None:
    text = f"""\
{MESHES}func @main(
  %a: f32[8, 4@x],
) -> (f32[8, 4], i32[8, 4]) {{
  %v, %i = top_k(%a) : f32[8@-, 4@-] on @one, i32[8@-, 4@-] on @two
  return %v, %i
}}
"""
    with pytest.raises(PartitionError) as caught:
        InsertExplicitReshards()(parse(text))
    assert str(caught.value) == (
        "%v = top_k has results on the single devices of @one and @two; "
        "state one device for all of them"
    )


def test_an_argument_on_a_single_device_comes_to_the_mesh() -> None:
    text = f"""\
{MESHES}func @main(
  %a: f32[8@-] on @one,
) -> (f32[8@-]) {{
  %r = neg(%a) : f32[8@-] on @m
  return %r
}}
"""
    assert lines(InsertExplicitReshards()(parse(text))) == [
        "%a.unsharded = reshard(%a) : f32[8@-]",
        "%r = neg(%a.unsharded) : f32[8@-]",
    ]
