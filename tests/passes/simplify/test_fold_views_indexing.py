"""`fold-views` at its boundaries: dynamic slices, gathers, scatters, reductions and elementwise
operations."""

import numpy as np
import pytest

from shardir import parse
from shardir.interpret.interpreter import run
from shardir.ir.dtypes import FLOATS, INTEGERS, NUMPY_DTYPES
from shardir.passes import Pipeline
from shardir.verify.verifier import verify
from tests.passes.simplify.view_folding_cases import check_folded, program
from tests.programs.near_misses import disagreements

SCATTER = """op="add", update_window_dims=[1], inserted_window_dims=[0], scatter_dims=[0]"""
GATHER = "offset_dims=[1], collapsed_dims=[0], start_index_map=[0]"
# The parameters, the result type, the operations, and the operations after the pass.
CASES = {
    "a dynamic slice of a constant": (
        "%x: f32[2, 3], %i: i32[]",
        "f32[2, 3]",
        """\
  %o = constant(value=0) : i32[]
  %a = constant(value=2.0) : f32[4, 3]
  %b = dynamic_slice(%a, %i, %o) : f32[2, 3]
  %y = mul(%x, %b) : f32[2, 3]""",
        ["constant", "constant", "dynamic_slice", "mul"],
    ),
    "a dynamic slice of full size": (
        "%x: f32[4, 3], %i: i32[]",
        "f32[3, 4]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[3, 4]
  %y = dynamic_slice(%a, %i, %i) : f32[3, 4]""",
        ["transpose", "dynamic_slice"],
    ),
    "a dynamic slice of rows of two parts": (
        "%x: f32[2, 3], %i: i32[]",
        "f32[4]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[3, 2]
  %b = reshape(%a) : f32[6]
  %y = dynamic_slice(%b, %i) : f32[4]""",
        ["transpose", "reshape", "dynamic_slice"],
    ),
    "an update of a constant": (
        "%u: f32[2, 3], %i: i32[]",
        "f32[4, 3]",
        """\
  %o = constant(value=0) : i32[]
  %a = constant(value=2.0) : f32[4, 3]
  %y = dynamic_update_slice(%a, %u, %i, %o) : f32[4, 3]""",
        ["constant", "constant", "dynamic_update_slice"],
    ),
    "an update of a broadcast": (
        "%x: f32[3], %u: f32[2, 3], %i: i32[]",
        "f32[4, 3]",
        """\
  %o = constant(value=0) : i32[]
  %a = broadcast(%x, dims=[1]) : f32[4, 3]
  %y = dynamic_update_slice(%a, %u, %i, %o) : f32[4, 3]""",
        ["broadcast", "constant", "dynamic_update_slice"],
    ),
    "an update of full size": (
        "%x: f32[4, 3], %u: f32[3, 4], %i: i32[]",
        "f32[3, 4]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[3, 4]
  %y = dynamic_update_slice(%a, %u, %i, %i) : f32[3, 4]""",
        ["transpose", "dynamic_update_slice"],
    ),
    "an update of rows of two parts": (
        "%x: f32[2, 3], %u: f32[4], %i: i32[]",
        "f32[6]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[3, 2]
  %b = reshape(%a) : f32[6]
  %y = dynamic_update_slice(%b, %u, %i) : f32[6]""",
        ["transpose", "reshape", "dynamic_update_slice"],
    ),
    "an update whose columns are split in another way": (
        "%x: f32[4, 2, 3], %u: f32[1, 3, 2], %i: i32[]",
        "f32[4, 6]",
        """\
  %o = constant(value=0) : i32[]
  %a = transpose(%x, perm=[0, 2, 1]) : f32[4, 3, 2]
  %b = reshape(%a) : f32[4, 6]
  %c = transpose(%u, perm=[0, 2, 1]) : f32[1, 2, 3]
  %d = reshape(%c) : f32[1, 6]
  %y = dynamic_update_slice(%b, %d, %i, %o) : f32[4, 6]""",
        ["transpose", "reshape", "reshape", "transpose", "reshape", "constant",
         "dynamic_update_slice"],
    ),
    "rows of a constant": (
        "%x: f32[5, 4], %i: i32[5, 1]",
        "f32[5, 4]",
        f"""\
  %a = constant(value=2.0) : f32[6, 4]
  %b = gather(%a, %i, {GATHER}) : f32[5, 4]
  %y = mul(%x, %b) : f32[5, 4]""",
        ["constant", "gather", "mul"],
    ),
    "rows of two parts that are looked up": (
        "%x: f32[2, 3, 4], %i: i32[5, 1]",
        "f32[5, 4]",
        f"""\
  %a = transpose(%x, perm=[1, 0, 2]) : f32[3, 2, 4]
  %b = reshape(%a) : f32[6, 4]
  %y = gather(%b, %i, {GATHER}) : f32[5, 4]""",
        ["transpose", "reshape", "gather"],
    ),
    "indices that are a constant": (
        "%x: f32[4, 6]",
        "f32[5, 4]",
        f"""\
  %a = transpose(%x, perm=[1, 0]) : f32[6, 4]
  %i = constant(value=3) : i32[5, 1]
  %y = gather(%a, %i, {GATHER}) : f32[5, 4]""",
        ["constant", "gather"],
    ),
    "indices whose last dimension is not the last of the base": (
        "%x: f32[4, 6], %j: i32[2, 5]",
        "f32[5]",
        """\
  %i = transpose(%j, perm=[1, 0]) : i32[5, 2]
  %y = gather(%x, %i, offset_dims=[], collapsed_dims=[0, 1], start_index_map=[0, 1]) : f32[5]""",
        ["transpose", "gather"],
    ),
    "windows of a part of the rows": (
        "%x: f32[4, 6], %i: i32[5, 1]",
        "f32[5, 2, 4]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[6, 4]
  %y = gather(%a, %i, offset_dims=[1, 2], collapsed_dims=[], start_index_map=[0]) : f32[5, 2, 4]""",
        ["gather", "transpose"],
    ),
    "rows that are added to a broadcast": (
        "%x: f32[4], %i: i32[5, 1], %u: f32[5, 4]",
        "f32[6, 4]",
        f"""\
  %a = broadcast(%x, dims=[1]) : f32[6, 4]
  %y = scatter(%a, %i, %u, {SCATTER}) : f32[6, 4]""",
        ["broadcast", "scatter"],
    ),
    "broadcast rows that are added to a constant": (
        "%x: f32[5], %i: i32[5, 1]",
        "f32[6, 4]",
        f"""\
  %a = constant(value=0.0) : f32[6, 4]
  %u = broadcast(%x, dims=[0]) : f32[5, 4]
  %y = scatter(%a, %i, %u, {SCATTER}) : f32[6, 4]""",
        ["constant", "broadcast", "scatter"],
    ),
    "broadcast rows that are added to others": (
        "%x: f32[5], %z: f32[6], %i: i32[5, 1]",
        "f32[6, 4]",
        f"""\
  %a = broadcast(%z, dims=[0]) : f32[6, 4]
  %u = broadcast(%x, dims=[0]) : f32[5, 4]
  %y = scatter(%a, %i, %u, {SCATTER}) : f32[6, 4]""",
        ["broadcast", "broadcast", "scatter"],
    ),
    "rows that are added to rows of two parts": (
        "%x: f32[2, 3, 4], %i: i32[5, 1], %u: f32[5, 4]",
        "f32[6, 4]",
        f"""\
  %a = transpose(%x, perm=[1, 0, 2]) : f32[3, 2, 4]
  %b = reshape(%a) : f32[6, 4]
  %y = scatter(%b, %i, %u, {SCATTER}) : f32[6, 4]""",
        ["transpose", "reshape", "scatter"],
    ),
    "rows whose columns have two parts that are added to a constant": (
        "%u: f32[2, 5, 3], %i: i32[5, 1]",
        "f32[6, 6]",
        f"""\
  %a = constant(value=0.0) : f32[6, 6]
  %b = transpose(%u, perm=[1, 0, 2]) : f32[5, 2, 3]
  %c = reshape(%b) : f32[5, 6]
  %y = scatter(%a, %i, %c, {SCATTER}) : f32[6, 6]""",
        ["constant", "transpose", "scatter", "reshape"],
    ),
    "a sum of a constant": (
        "%x: f32[3]",
        "f32[3]",
        """\
  %a = constant(value=2.0) : f32[4, 3]
  %b = sum(%a, dims=[0]) : f32[3]
  %y = mul(%x, %b) : f32[3]""",
        ["constant", "sum", "mul"],
    ),
    "a sum of a scalar": (
        "%x: f32[]",
        "f32[]",
        "  %y = sum(%x, dims=[]) : f32[]",
        ["sum"],
    ),
    "a product of equal factors": (
        "%x: f32[3]",
        "f32[3]",
        """\
  %a = broadcast(%x, dims=[1]) : f32[4, 3]
  %y = prod(%a, dims=[0]) : f32[3]""",
        ["broadcast", "prod"],
    ),
    "a sum of 300 equal terms, which may be rounded in another way": (
        "%x: bf16[3]",
        "bf16[3]",
        """\
  %a = broadcast(%x, dims=[1]) : bf16[300, 3]
  %y = sum(%a, dims=[0]) : bf16[3]""",
        ["broadcast", "sum"],
    ),
    "a predicate of another shape": (
        "%p: bool[], %x: f32[3, 4], %z: f32[3, 4]",
        "f32[4, 3]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[4, 3]
  %b = transpose(%z, perm=[1, 0]) : f32[4, 3]
  %y = select(%p, %a, %b) : f32[4, 3]""",
        ["select", "transpose"],
    ),
    "layouts of different ranks with equal dimensions": (
        "%x: f32[3, 1, 4], %z: f32[3, 4]",
        "f32[4, 3]",
        """\
  %a = transpose(%x, perm=[2, 1, 0]) : f32[4, 1, 3]
  %b = reshape(%a) : f32[4, 3]
  %c = transpose(%z, perm=[1, 0]) : f32[4, 3]
  %y = add(%b, %c) : f32[4, 3]""",
        ["reshape", "add", "transpose"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("params", "result", "operations", "after"), CASES.values(), ids=CASES)
def test_operations_after_the_pass(
    params: str, result: str, operations: str, after: list[str]
) -> None:
    check_folded(parse(program(params, result, operations)), after)


@pytest.mark.parametrize(("params", "result", "operations", "_"), CASES.values(), ids=CASES)
def test_programs_that_resemble_these_keep_their_results(
    params: str, result: str, operations: str, _: list[str]
) -> None:
    found = disagreements(parse(program(params, result, operations)), "fold-views,cse,dce")
    assert not found, found[0]


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("count", [8, 16, 128, 512])
def test_a_sum_of_equal_elements_has_the_bits_of_the_sum(dtype: str, count: int) -> None:
    """A product with the count is not the sum where the count is no number of the dtype."""
    module = parse(f"""\
func @main(%x: {dtype}[2]) -> ({dtype}[2]) {{
  %0 = broadcast(%x, dims=[1]) : {dtype}[{count}, 2]
  %1 = sum(%0, dims=[0]) : {dtype}[2]
  return %1
}}
""")
    made = Pipeline.parse("fold-views,dce")(module)
    verify(made)
    arguments = [np.array([0.5 if dtype in FLOATS else 1, 0]).astype(NUMPY_DTYPES[dtype])]
    (want,), (got,) = run(module, arguments), run(made, arguments)
    assert got.tobytes() == want.tobytes(), (got, want)


@pytest.mark.parametrize(
    ("dtype", "count", "operation"),
    [
        ("i4", 7, "mul"), ("i4", 8, "sum"), ("i32", 300, "mul"),
        ("f4e2m1fn", 4, "mul"), ("f4e2m1fn", 8, "sum"), ("f32", 1 << 20, "mul"), ("f32", 3, "sum"),
    ],
)  # fmt: skip
def test_a_sum_of_equal_elements_is_a_product_with_a_number_of_the_dtype(
    dtype: str, count: int, operation: str
) -> None:
    module = parse(f"""\
func @main(%x: {dtype}[2]) -> ({dtype}[2]) {{
  %0 = broadcast(%x, dims=[1]) : {dtype}[{count}, 2]
  %1 = sum(%0, dims=[0]) : {dtype}[2]
  return %1
}}
""")
    assert Pipeline.parse("fold-views,dce")(module).main.body.ops[-1].name == operation
