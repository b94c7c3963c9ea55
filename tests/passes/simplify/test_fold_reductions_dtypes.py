"""`fold-reductions`: the dtypes in which sums are folded."""

import numpy as np
import pytest

from shardir import parse
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.passes import Pipeline
from shardir.verify.verifier import verify


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("operands", "result", "folded"),
    [
        ("i32", "i32", True), ("i8", "i8", True), ("f32", "f32", True),
        ("i8", "i32", False), ("u8", "i32", False), ("i16", "i32", False), ("f32", "f64", False),
        ("bf16", "f32", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dims", ["0", "1", "0, 1"])
def test_operands_are_summed_only_in_the_type_of_the_result(
    operands: str, result: str, folded: bool, dims: str
) -> None:
    shape = {"0": "[3]", "1": "[40]", "0, 1": "[]"}[dims]
    module = parse(
        f"func @main(%x: {operands}[40, 6], %w: {operands}[6, 3]) -> ({result}{shape}) {{\n"
        f'  %0 = dot(%x, %w, dims="ak,kb->ab") : {result}[40, 3]\n'
        f"  %1 = sum(%0, dims=[{dims}]) : {result}{shape}\n"
        "  return %1\n}\n"
    )
    made = Pipeline.parse("fold-reductions,dce")(module, lambda step, old, new, _: verify(new))
    assert (made.main.body.ops[-1].name == "dot") == folded
    if operands not in ("i8", "u8", "i16"):
        return
    arguments = [
        np.full(value.type.shape, 120, value.type.numpy) for value in module.main.body.params
    ]
    np.testing.assert_array_equal(run(made, arguments), run(module, arguments))


FACTOR = """\
func @main(
  %h: DTYPE[2, 16, 8],
  %d: DTYPE[2, 8, 5],
  %w: DTYPE[16, 5],
) -> (DTYPE[16, 5]) {
  %0 = dot(%h, %d, dims="abi,aio->abo") : DTYPE[2, 16, 5]
  %1 = broadcast(%w, dims=[1, 2]) : DTYPE[2, 16, 5]
  %2 = OPERATION(%0, %1) : DTYPE[2, 16, 5]
  %3 = sum(%2, dims=[0]) : DTYPE[16, 5]
  return %3
}
"""


@pytest.mark.parametrize(
    ("dtype", "operation", "folded"),
    [("f32", "mul", True), ("f32", "div", True), ("i32", "mul", True), ("i32", "div", False)],
)
def test_factors_and_quotients(dtype: str, operation: str, folded: bool) -> None:
    module = parse(FACTOR.replace("DTYPE", dtype).replace("OPERATION", operation))
    made = Pipeline.parse("fold-reductions,dce")(module)
    names = [op.name for op in made.main.body.ops]
    assert names == (["dot", operation] if folded else ["dot", "broadcast", operation, "sum"])


@pytest.mark.parametrize(
    ("dtype", "folded"),
    [
        ("f32", True), ("i8", True), ("bf16", True), ("f16", False), ("f8e4m3fn", False),
        ("f8e8m0fnu", False),
    ],
)  # fmt: skip
def test_scatters_are_added_up_in_types_with_the_range_of_the_sum(dtype: str, folded: bool) -> None:
    module = parse(f"""\
func @main(
  %t: {dtype}[2, 8, 3],
  %i: i32[2, 16, 1],
  %u: {dtype}[2, 16, 3],
) -> ({dtype}[8, 3]) {{
  %0 = scatter(%t, %i, %u, op=add, update_window_dims=[2], inserted_window_dims=[1], \
scatter_dims=[1], operand_batching_dims=[0], indices_batching_dims=[0]) : {dtype}[2, 8, 3]
  %1 = sum(%0, dims=[0]) : {dtype}[8, 3]
  return %1
}}
""")
    made = Pipeline.parse("fold-reductions,dce")(module)
    assert (made.main.body.ops[-1].name == "scatter") == folded
    # The sum of both tables is out of range of i8, f16 and f8e4m3fn.
    table = np.full((2, 8, 3), {"i8": 100, "f16": 60000}.get(dtype, 400))
    updates = np.where(np.arange(16)[:, None] == 0, -table[:, :1], 0) + np.zeros((2, 16, 3))
    numpy = module.main.body.params[0].type.numpy
    arguments = [
        table.astype(numpy), np.zeros((2, 16, 1), np.int32), np.asarray(updates).astype(numpy)
    ]  # fmt: skip
    assert are_close(run(module, arguments), run(made, arguments), tolerance_of(module))
