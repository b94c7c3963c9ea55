"""Fused groups in emitted programs: functions, reference functions, kernel launches."""

from shardir.text.parser import parse
from tests.backends.gpu.program_execution import main_function_text, program_text

GROUPS = """\
func @f(%x: f32[4, 6], %y: f32[4, 6]) -> (f32[4, 6], f32[4, 6]) {
  %a = fused(%x, %y) : f32[4, 6] {
    (%p: f32[4, 6], %q: f32[4, 6]) =>
    %r = mul(%p, %q) : f32[4, 6]
    %s = add(%r, %p) : f32[4, 6]
    yield %s
  }
  %b = fused(%y, %a) : f32[4, 6] {
    (%t: f32[4, 6], %u: f32[4, 6]) =>
    %v = mul(%t, %u) : f32[4, 6]
    %w = add(%v, %t) : f32[4, 6]
    yield %w
  }
  %c = fused(%a, %b) : f32[4, 6] {
    (%k: f32[4, 6], %l: f32[4, 6]) =>
    %m = sub(%k, %l) : f32[4, 6]
    yield %m
  }
  return %b, %c
}
"""


def test_equal_groups_share_a_function_and_single_operations_have_none() -> None:
    assert (
        main_function_text(parse(GROUPS))
        == """\
def main(comm, x, y):
    a = compute_a(x, y)  # fused: f32[4, 6]
    b = compute_a(y, a)  # fused: f32[4, 6]
    c = a - b  # sub: f32[4, 6]
    return (b, c)"""
    )


def test_groups_that_differ_in_the_sign_of_a_zero_have_two_functions() -> None:
    group = """\
  %{0} = fused(%x) : f32[4] {{
    (%{0}.x: f32[4]) =>
    %{0}.c = constant(value={1}) : f32[4]
    %{0}.s = add(%{0}.x, %{0}.c) : f32[4]
    %{0}.n = neg(%{0}.s) : f32[4]
    yield %{0}.n
  }}
"""
    head, tail = "func @f(%x: f32[4]) -> (f32[4], f32[4]) {\n", "  return %a, %b\n}\n"
    text = main_function_text(
        parse(head + group.format("a", "0.0") + group.format("b", "-0.0") + tail)
    )
    assert text.splitlines()[1:3] == [
        "    a = compute_a(x)  # fused: f32[4]",
        "    b = compute_b(x)  # fused: f32[4]",
    ]


PRODUCTS = """\
  %{0} = fused_products({1}) : f32[16, 4] {{
    (%{0}.q: f32[16, 4], %{0}.k: f32[16, 4], %{0}.v: f32[16, 4]) =>
    %{0}.s = dot(%{0}.q, %{0}.k, dims="th,sh->ts") : f32[16, 16]
    %{0}.m = max(%{0}.s, dims=[1]) : f32[16]
    %{0}.n = broadcast(%{0}.m, dims=[0]) : f32[16, 16]
    %{0}.d = sub(%{0}.s, %{0}.n) : f32[16, 16]
    %{0}.y = dot(%{0}.d, %{0}.v, dims="ts,sh->th") : f32[16, 4]
    yield %{0}.y
  }}
"""


def test_groups_that_differ_in_equal_operands_have_two_functions() -> None:
    """A kernel loads a matrix that is key and value only once."""
    head = "func @f(%x: f32[16, 4], %y: f32[16, 4]) -> (f32[16, 4], f32[16, 4]) {\n"
    groups = PRODUCTS.format("a", "%x, %y, %y") + PRODUCTS.format("b", "%a, %x, %y")
    text = main_function_text(parse(head + groups + "  return %a, %b\n}\n"))
    assert text.splitlines()[1:3] == [
        "    a = compute_a(x, y, y)  # fused_products: f32[16, 4]",
        "    b = compute_b(a, x, y)  # fused_products: f32[16, 4]",
    ]


def test_operands_with_the_names_of_functions() -> None:
    names = ("%compute_a_reference", "%INTERPRETED", "%compute_a_operands")
    head = f"func @f({', '.join(f'{name}: f32[16, 4]' for name in names)}) -> (f32[16, 4]) {{\n"
    group = PRODUCTS.format("a", ", ".join(names))
    text = program_text(parse(f"{head}{group}  return %a\n}}\n"))
    assert "def compute_a(compute_a_reference_1, INTERPRETED_1, compute_a_operands_1):" in text


def test_a_group_has_a_reference_function_a_kernel_and_a_launch() -> None:
    text = program_text(parse(GROUPS))
    assert "@triton.jit\ndef compute_a_kernel(" in text
    assert (
        """
def compute_a_reference(x, y):
    \"\"\"The same in plain torch.\"\"\"
    r = x * y  # mul: f32[4, 6]
    a = r + x  # add: f32[4, 6]
    return a


def compute_a(x, y):
    if not (x.is_cuda or INTERPRETED):
        return compute_a_reference(x, y)
    x = x.contiguous()
    y = y.contiguous()
    a = torch.empty((4, 6), dtype=torch.float32, device=x.device)
    compute_a_kernel[(1,)](x, y, a, BLOCK=32, num_warps=1, enable_fp_fusion=False)
    return a
"""
        in text
    )
