"""The `fused` operation: the axes of its loop nest, and invalid blocks."""

import numpy as np
import pytest

from shardir.backends.numpy.executor import NumPyExecutable
from shardir.errors import ParseError
from shardir.interpret.interpreter import run
from shardir.ops.control_flow.fused import build_loop_nest
from shardir.passes.simplify.inline import Inline
from shardir.text.parser import parse
from shardir.verify.verifier import verify

SOFTMAX = """\
func @f(
  %x: f32[4, 8],
  %b: f32[8],
) -> (f32[4, 8], f32[4]) {
  %y, %m = fused(%x, %b) : f32[4, 8], f32[4] {
    (%x.1: f32[4, 8], %b.1: f32[8]) =>
    %c = broadcast(%b.1, dims=[1]) : f32[4, 8]
    %z = add(%x.1, %c) : f32[4, 8]
    %m.1 = max(%z, dims=[1]) : f32[4]
    %column = reshape(%m.1) : f32[4, 1]
    %most = broadcast(%column, dims=[0, 1]) : f32[4, 8]
    %y.1 = sub(%z, %most) : f32[4, 8]
    yield %y.1, %m.1
  }
  return %y, %m
}
"""


def test_fused_computes_its_block() -> None:
    module = parse(SOFTMAX)
    verify(module)
    assert str(module) == SOFTMAX
    x, b = np.arange(32, dtype=np.float32).reshape(4, 8), np.ones(8, np.float32)
    y, m = run(module, [x, b])
    np.testing.assert_array_equal(m, (x + b).max(1))
    np.testing.assert_array_equal(y, x + b - m[:, None])
    ((y2,), (m2,)) = NumPyExecutable(module)([[x], [b]])
    np.testing.assert_array_equal(y2, y)
    np.testing.assert_array_equal(m2, m)
    inlined = Inline()(module)
    verify(inlined)
    assert [op.name for op in inlined.main.body.ops][:2] == ["broadcast", "add"]
    np.testing.assert_array_equal(run(inlined, [x, b])[0], y)


def test_the_loop_nest_has_an_axis_per_matched_dimension() -> None:
    (op,) = parse(SOFTMAX).main.body.ops
    nest = build_loop_nest(op.blocks[0])
    lies = {value.name: lie for value, lie in nest.mappings.items()}
    assert nest.extents == (4, 8)
    assert nest.reduced_loops == {1}
    assert lies["b.1"] == (1,)
    assert lies["column"] == lies["m.1"] == (0,)


def _fault(params: str, body: str, yields: str, types: str) -> str:
    inner = params.split("; ")
    outer = [param.replace("%", "%o.") for param in inner]
    names = ", ".join(param.split(":")[0] for param in outer)
    lines = "".join(f"    {line}\n" for line in body.split("; "))
    made = ", ".join(f"%r{i}" for i in range(len(yields.split(", "))))
    text = f"""
func @f({", ".join(outer)}, %free: f32[4]) -> ({types}) {{
  {made} = fused({names}) : {types} {{
    ({", ".join(inner)}) =>
{lines}    yield {yields}
  }}
  return {made}
}}
"""
    with pytest.raises(ParseError) as caught:
        parse(text)
    return str(caught.value).split("\n")[0]


@pytest.mark.parametrize(
    ("params", "body", "yields", "types", "expected"),
    [
        (
            "%x: f32[4, 4]",
            "%y = transpose(%x, perm=[1, 0]) : f32[4, 4]",
            "%y",
            "f32[4, 4]",
            "fused: cannot hold %y = transpose; it takes elementwise operations, broadcast, iota, "
            "constants of one number, reshape that adds or drops dimensions of size 1, bitcast of "
            "32 or 64 bits to as many, and sum, prod, max, min, any and all",
        ),
        (
            "%x: f32[4]",
            "%a = broadcast(%x, dims=[0]) : f32[4, 4]; %b = broadcast(%x, dims=[1]) : f32[4, 4]; "
            "%y = add(%a, %b) : f32[4, 4]",
            "%y",
            "f32[4, 4]",
            "fused: %a: f32[4, 4] maps two dimensions to one loop; transpose an operand "
            "outside, or pass it twice",
        ),
        (
            "%x: f32[4, 8]",
            "%y = sum(%x, dims=[0]) : f32[8]; %z = max(%x, dims=[1]) : f32[4]",
            "%y, %z",
            "f32[8], f32[4]",
            "fused: %y = sum and %z = max remove different loops; reduce one of them outside",
        ),
        (
            "%x: f32[4, 8]; %g: f32[8]",
            "%c = broadcast(%g, dims=[1]) : f32[4, 8]; %y = mul(%x, %c) : f32[4, 8]; "
            "%s = sum(%g, dims=[0]) : f32[]",
            "%y, %s",
            "f32[4, 8], f32[]",
            "fused: %s = sum reduces %g: f32[8], which maps to only some loops; reduce it outside",
        ),
        (
            "%x: f32[4, 8]; %g: f32[8]",
            "%e = exp(%g) : f32[8]; %c = broadcast(%e, dims=[1]) : f32[4, 8]; "
            "%y = mul(%x, %c) : f32[4, 8]",
            "%y, %e",
            "f32[4, 8], f32[8]",
            "fused: it yields %e: f32[8], which maps to only some loops; compute it outside",
        ),
        (
            "%x: f32[4]",
            "%y = add(%x, %free) : f32[4]",
            "%y",
            "f32[4]",
            "fused: its block uses %free: f32[4] of the blocks around it; pass it as an operand",
        ),
        (
            "%x: f32[2]",
            "%c = constant(value=dense(f32, [1.0, 2.0])) : f32[2]; %y = add(%x, %c) : f32[2]",
            "%y",
            "f32[2]",
            "fused: its constant %c is an array; pass it as an operand",
        ),
    ],
    ids=["transpose", "twice", "axes", "part", "yield", "outside", "array"],
)
def test_blocks_that_are_no_loop_nest_are_errors(
    params: str, body: str, yields: str, types: str, expected: str
) -> None:
    assert _fault(params, body, yields, types) == expected
