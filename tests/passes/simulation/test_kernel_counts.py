"""The work of kernels: the bytes, passes and operations that the time of a kernel depends on."""

import pytest

from shardir.ir.module import Op
from shardir.machine.kernel_time import SizedOperation
from shardir.passes.simulation.kernel_counts import count_kernel, sized_operation
from shardir.passes.simulation.visible_scores import visible_fraction
from shardir.text.parser import parse

BYTES = 16 * 64 * 4
"""The bytes of f32[16, 64]."""
MEASURED = {"exp", "sort", "transpose", "cumsum", "sum"}


def is_measured(name: str, dtype: str) -> bool:
    return name in MEASURED


def operation(params: str, text: str, result: str = "f32[16, 64]", name: str = "%y") -> Op:
    module = parse(f"func @f({params}) -> ({result}) {{\n  {text}\n  return {name}\n}}")
    (op,) = module.main.body.ops
    return op


MATRIX = "%x: f32[16, 64]"
SOFTMAX = """%y = fused(%x) : f32[16, 64] {
    (%a: f32[16, 64]) =>
    %m = max(%a, dims=[1]) : f32[16]
    %mb = broadcast(%m, dims=[0]) : f32[16, 64]
    %d = sub(%a, %mb) : f32[16, 64]
    %e = exp(%d) : f32[16, 64]
    %s = sum(%e, dims=[1]) : f32[16]
    %sb = broadcast(%s, dims=[0]) : f32[16, 64]
    %q = div(%e, %sb) : f32[16, 64]
    yield %q
  }"""


def test_a_softmax_has_three_passes() -> None:
    counts = count_kernel(operation(MATRIX, SOFTMAX), is_measured, None)
    assert (counts.read, counts.written) == (BYTES, BYTES)
    first, second, third = counts.passes
    assert (first.transferred, first.elements) == (BYTES, {("max", "f32"): 1024})
    # The second pass stores the exponentials, which the third one loads.
    assert second.transferred == 2 * BYTES
    assert second.elements == {("sub", "f32"): 1024, ("exp", "f32"): 1024, ("sum", "f32"): 1024}
    assert (third.transferred, third.elements) == (2 * BYTES, {("div", "f32"): 1024})
    # The passes begin again for each row.
    assert counts.group_bytes == 2 * BYTES / 16


def test_operations_without_a_measured_time_are_computed_again() -> None:
    counts = count_kernel(operation(MATRIX, SOFTMAX), lambda name, dtype: False, None)
    second, third = counts.passes[1:]
    assert second.transferred == BYTES
    assert third.transferred == 2 * BYTES
    assert third.elements == dict.fromkeys((("sub", "f32"), ("exp", "f32"), ("div", "f32")), 1024)


def test_an_elementwise_kernel_has_one_pass() -> None:
    op = operation(
        MATRIX,
        """%y = fused(%x) : f32[16, 64] {
    (%a: f32[16, 64]) =>
    %e = exp(%a) : f32[16, 64]
    %p = mul(%e, %e) : f32[16, 64]
    %q = mul(%p, %a) : f32[16, 64]
    yield %q
  }""",
    )
    (only,) = count_kernel(op, is_measured, None).passes
    assert only.transferred == 2 * BYTES
    assert only.elements == {("exp", "f32"): 1024, ("mul", "f32"): 2048}
    alone = count_kernel(operation(MATRIX, "%y = exp(%x) : f32[16, 64]"), is_measured, None)
    assert alone.passes[0].transferred == 2 * BYTES
    assert alone.passes[0].elements == {("exp", "f32"): 1024}


def test_a_kernel_that_returns_an_argument_copies_it() -> None:
    module = parse("""
func @f(%x: f32[16, 64]) -> (f32[16, 64], f32[16, 64]) {
  %y, %z = fused(%x) : f32[16, 64], f32[16, 64] {
    (%a: f32[16, 64]) =>
    %e = exp(%a) : f32[16, 64]
    yield %e, %a
  }
  return %y, %z
}""")
    (op,) = module.main.body.ops
    (only,) = count_kernel(op, is_measured, None).passes
    assert (only.transferred, only.elements) == (3 * BYTES, {("exp", "f32"): 1024})


def test_an_operand_that_a_kernel_reads_twice_counts_once() -> None:
    op = operation("%x: f32[8, 4]", '%y = dot(%x, %x, dims="ij,ij->") : f32[]', "f32[]")
    counts = count_kernel(op, is_measured, None)
    assert (counts.read, counts.written, counts.products) == (128, 4, (("f32", 64),))


def test_parts_of_operands() -> None:
    text = "%y = slice(%x, starts=[4, 0], strides=[1, 1]) : f32[8, 64]"
    counts = count_kernel(operation(MATRIX, text, "f32[8, 64]"), is_measured, None)
    assert (counts.read, counts.written) == (BYTES / 2, BYTES / 2)
    params = f"{MATRIX}, %u: f32[8, 64], %i: i32[]"
    text = "%y = dynamic_update_slice(%x, %u, %i, %i) : f32[16, 64]"
    counts = count_kernel(operation(params, text), is_measured, None)
    assert (counts.read, counts.written) == (BYTES / 2 + 8, BYTES / 2 + 8)


@pytest.mark.parametrize(
    ("text", "result", "transferred"),
    [
        ("%y = sum(%x, dims=[1]) : f32[16]", "f32[16]", BYTES + 64),
        # The measured time of another operation includes its traffic.
        ("%y = cumprod(%x, dim=1, reverse=false) : f32[16, 64]", "f32[16, 64]", 0),
    ],
)
def test_traffic_of_a_single_operation(text: str, result: str, transferred: int) -> None:
    counts = count_kernel(operation(MATRIX, text, result), is_measured, None)
    assert [each.transferred for each in counts.passes] == [transferred]


def test_an_operation_without_operands_has_no_measured_time() -> None:
    text = "%y = iota(dim=0) : f32[16, 64]"
    assert sized_operation(operation("", text), lambda name, dtype: True) is None


@pytest.mark.parametrize(
    ("text", "result", "expected"),
    [
        ("sort(%x, dim=1, keys=1, stable=true) : f32[16, 64]", "f32[16, 64]", ("sort", 64)),
        ("sort(%x, dim=0, keys=1, stable=true) : f32[16, 64]", "f32[16, 64]", ("sort", 16)),
        ("cumsum(%x, dim=1, reverse=false) : f32[16, 64]", "f32[16, 64]", ("cumsum", 1024)),
        ("transpose(%x, perm=[1, 0]) : f32[64, 16]", "f32[64, 16]", ("transpose", 1024)),
        # These have no measured time of their own.
        ("cumprod(%x, dim=1, reverse=false) : f32[16, 64]", "f32[16, 64]", None),
        ("exp(%x) : f32[16, 64]", "f32[16, 64]", None),
        ("sum(%x, dims=[1]) : f32[16]", "f32[16]", None),
    ],
)
def test_operations_whose_time_includes_their_traffic(
    text: str, result: str, expected: tuple[str, int] | None
) -> None:
    found = sized_operation(operation(MATRIX, f"%y = {text}", result), is_measured)
    made = None if expected is None else SizedOperation(expected[0], "f32", 1024, expected[1])
    assert found == made


@pytest.mark.parametrize(("minor", "is_copy"), [(8, False), (16, True)])
def test_a_transpose_of_long_lines_is_a_copy(minor: int, is_copy: bool) -> None:
    op = operation(
        f"%x: f32[4, 8, {minor}]",
        f"%y = transpose(%x, perm=[1, 0, 2]) : f32[8, 4, {minor}]",
        f"f32[8, 4, {minor}]",
    )
    assert (sized_operation(op, is_measured) is None) == is_copy
    assert count_kernel(op, is_measured, None).read == 4 * 8 * minor * 4


ATTENTION = """%y = fused_products(%q, %k, %v) : f32[64, 8] {{
    (%a: f32[64, 8], %b: f32[64, 8], %c: f32[64, 8]) =>
    %row = iota(dim=0) : i32[64, 64]
    %column = iota(dim=1) : i32[64, 64]
    %mask = {mask} : bool[64, 64]
    %s = dot(%a, %b, dims="th,sh->ts") : f32[64, 64]
    %fill = constant(value=-1e+30) : f32[64, 64]
    %z = select({selected}) : f32[64, 64]
    %m = max(%z, dims=[1]) : f32[64]
    %mb = broadcast(%m, dims=[0]) : f32[64, 64]
    %d = sub(%z, %mb) : f32[64, 64]
    %e = exp(%d) : f32[64, 64]
    %l = sum(%e, dims=[1]) : f32[64]
    %lb = broadcast(%l, dims=[0]) : f32[64, 64]
    %p = div(%e, %lb) : f32[64, 64]
    %o = dot(%p, %c, dims="ts,sh->th") : f32[64, 8]
    yield %o
  }}"""
CONVERTED_ATTENTION = ATTENTION.replace("%a: f32[64, 8]", "%half: f16[64, 8]").replace(
    "    %s = dot", "    %a = convert(%half) : f32[64, 8]\n    %s = dot"
)
"""Products multiply converted arguments, which are no scores."""
CAUSAL = (64 * 65 / 2) / 64**2
"""The fraction of the scores that a causal mask does not exclude."""


@pytest.mark.parametrize(
    ("mask", "selected", "edge", "visible"),
    [
        ("ge(%row, %column)", "%mask, %s, %fill", None, 1.0),
        ("ge(%row, %column)", "%mask, %s, %fill", 0.0, CAUSAL),
        ("ge(%row, %column)", "%mask, %s, %fill", 8.0, CAUSAL + 8 / 64),
        ("ge(%row, %column)", "%mask, %s, %fill", 64.0, 1.0),
        ("lt(%row, %column)", "%mask, %fill, %s", 0.0, CAUSAL),
        ("eq(%row, %column)", "%mask, %s, %fill", 0.0, 1 / 64),
    ],
)
def test_masked_scores_are_not_computed(
    mask: str, selected: str, edge: float | None, visible: float
) -> None:
    params = "%q: f32[64, 8], %k: f32[64, 8], %v: f32[64, 8]"
    op = operation(params, ATTENTION.format(mask=mask, selected=selected), "f32[64, 8]")
    counts = count_kernel(op, is_measured, edge)
    assert (counts.read, counts.written) == (3 * 64 * 8 * 4, 64 * 8 * 4)
    assert counts.products == (("f32", 2 * 64 * 64 * 8 * visible),) * 2
    exponentials = sum(each.elements.get(("exp", "f32"), 0) for each in counts.passes)
    assert exponentials == 64 * 64 * visible


@pytest.mark.parametrize(("text", "dtype"), [(ATTENTION, "f32"), (CONVERTED_ATTENTION, "f16")])
def test_attention_has_three_passes_over_its_scores(text: str, dtype: str) -> None:
    """Each pass loads the scores; the second stores the exponentials, which the third loads and
    divides for the second product."""
    params = f"%q: {dtype}[64, 8], %k: f32[64, 8], %v: f32[64, 8]"
    text = text.format(mask="ge(%row, %column)", selected="%mask, %s, %fill")
    counts = count_kernel(operation(params, text, "f32[64, 8]"), is_measured, None)
    scores = 64 * 64 * 4
    assert [each.transferred for each in counts.passes] == [scores, 2 * scores, 2 * scores]
    assert ("exp", "f32") not in counts.passes[2].elements


@pytest.mark.parametrize(
    ("mask", "selected"),
    [
        ("ge(%row, %column)", "%mask, %s, %limits"),
        ("ge(%row, %column)", "%mask, %fill, %fill"),
        ("lt(%sums, %column)", "%mask, %s, %fill"),
    ],
    ids=["fill value that is an argument", "two constants", "mask that is not elementwise"],
)
def test_selections_that_are_no_masks_exclude_nothing(mask: str, selected: str) -> None:
    text = (
        "func @f(%s: f32[64, 64], %limits: f32[64, 64]) -> (f32[64, 64]) {\n"
        "  %row = iota(dim=0) : i32[64, 64]\n"
        "  %column = iota(dim=1) : i32[64, 64]\n"
        "  %sums = cumsum(%row, dim=1, reverse=false) : i32[64, 64]\n"
        f"  %mask = {mask} : bool[64, 64]\n"
        "  %fill = constant(value=-1e+30) : f32[64, 64]\n"
        f"  %z = select({selected}) : f32[64, 64]\n"
        "  return %z\n}"
    )
    assert visible_fraction(parse(text).main.body, 0.0) == 1.0


def test_masks_of_long_dimensions_are_evaluated_at_spread_indices() -> None:
    text = """
func @f(%s: f32[1024, 512]) -> (f32[1024, 512]) {
  %row = iota(dim=0) : i32[1024, 512]
  %limit = constant(value=256) : i32[1024, 512]
  %mask = lt(%row, %limit) : bool[1024, 512]
  %fill = constant(value=-1e+30) : f32[1024, 512]
  %z = select(%mask, %s, %fill) : f32[1024, 512]
  return %z
}"""
    assert visible_fraction(parse(text).main.body, 0.0) == 256 / 1024


def test_masks_that_are_arguments_exclude_nothing() -> None:
    text = ATTENTION.format(mask="not(%g)", selected="%mask, %s, %fill")
    text = text.replace("(%q, %k, %v)", "(%q, %k, %v, %given)")
    text = text.replace("%c: f32[64, 8])", "%c: f32[64, 8], %g: bool[64, 64])")
    params = "%q: f32[64, 8], %k: f32[64, 8], %v: f32[64, 8], %given: bool[64, 64]"
    counts = count_kernel(operation(params, text, "f32[64, 8]"), is_measured, 0.0)
    assert counts.products == (("f32", 2 * 64 * 64 * 8),) * 2
