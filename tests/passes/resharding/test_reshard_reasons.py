"""The reasons of reshards name factors, lost axes and the dimensions that scans iterate over."""

import pytest

from shardir.passes import InsertExplicitReshards, Partition
from shardir.text.parser import parse
from tests.passes.op_lines import body, reasons
from tests.passes.resharding.reshard_programs import MESH, run_reshard


@pytest.mark.parametrize(
    ("xs", "shape", "remedy"),
    [
        ("4@x, 8@-, 6@-", "8, 6", "shard dimension 1 instead"),
        ("4@x, 6@-, 8@-", "6, 8", "shard dimension 2 instead"),  # 6 does not divide over 4.
        ("4@x, 8@y, 12@-", "8@y, 12", "shard dimension 2 instead"),  # y shards dimension 1.
        ("4@x, 0@-, 8@-", "0, 8", "shard dimension 2 instead"),  # Dimension 1 is empty.
        ("4@x, 6@-", "6", "shard another dimension instead"),
    ],
)
def test_a_scan_over_a_sharded_dimension_names_a_dimension_to_shard(
    xs: str, shape: str, remedy: str
) -> None:
    module = run_reshard(f"""\
func @f(
  %xs: f32[{xs}],
) -> (f32[4@-, {shape}]) {{
  %ys = scan(%xs, carries=0, length=4, reverse=false) : f32[4@-, {shape}] {{
    (%s: f32[{shape}]) =>
    %e = exp(%s) : f32[{shape}]
    yield %e
  }}
  return %ys
}}
""")
    assert reasons(module)[0].partition(": ")[2] == (
        f"it iterates over dimension 0 of %xs, which is sharded over x; {remedy}"
    )


@pytest.mark.parametrize(
    ("xs", "why"), [("4@-, 8@x", ["operand 0 of %ys = scan needs [-, -]"]), ("4, 8", [])]
)
def test_a_scan_over_an_unsharded_dimension_names_no_dimension(xs: str, why: list[str]) -> None:
    module = run_reshard(f"""\
func @f(
  %xs: f32[{xs}],
) -> (f32[4@-, 8@-]) {{
  %ys = scan(%xs, carries=0, length=4, reverse=false) : f32[4@-, 8@-] {{
    (%s: f32[8@-]) =>
    %e = exp(%s) : f32[8@-]
    yield %e
  }}
  return %ys
}}
""")
    assert reasons(module) == why


def test_a_reshard_of_a_carried_value_names_no_dimension() -> None:
    text = """\
func @f(
  %a: f32[8@x, 4@-],
) -> (f32[8@-, 4@x]) {
  %b = scan(%a, carries=1, length=3) : f32[8@-, 4@x] {
    (%c: f32[8@-, 4@x]) =>
    %e = exp(%c) : f32[8@-, 4@x]
    yield %e
  }
  return %b
}
"""
    assert reasons(run_reshard(text)) == ["operand 0 of %b = scan needs [-, x]"]


def test_lost_axes_name_the_factors() -> None:
    batch = run_reshard("""\
func @f(
  %a: f32[2@y, 8@x, 4@-],
  %b: f32[2@-, 4@x, 8@-],
) -> (f32[2@y, 8@-, 8@-]) {
  %k = dot(%a, %b, dims="bik,bkj->bij") : f32[2@y, 8@-, 8@-]
  return %k
}
""")
    assert reasons(batch) == [
        "operand 1 of %k = dot needs [y, -, -]: x shards 'i', not 'k'",
        "%k = dot is computed with the sharding [y, x, -] and needed with [y, -, -]",
    ]
    both = run_reshard("""\
func @f(
  %a: f32[8@x, 6@y],
) -> (f32[8@-, 6@-]) {
  %k = reverse(%a, dims=[0, 1]) : f32[8@-, 6@-]
  return %k
}
""")
    assert reasons(both) == [
        "operand 0 of %k = reverse needs [-, -]: dimension 0 of %a is not sharded over x and "
        "dimension 1 of %a is not sharded over y"
    ]
    unshardable = run_reshard("""\
func @f(
  %a: f32[8@x, 3@-, 4@y],
) -> (f32[8@-, 3@-, 4@y]) {
  %k = sort(%a, dim=0) : f32[8@-, 3@-, 4@y]
  return %k
}
""")
    assert reasons(unshardable) == [
        "operand 0 of %k = sort needs [-, -, y]: dimension 0 of %a must be unsharded"
    ]


def test_a_dimension_of_two_factors_has_no_letter() -> None:
    """The features of %x are those of each group, and the groups."""
    module = run_reshard("""\
func @f(
  %x: f32[2@-, 8@-, 8@x],
  %w: f32[1@-, 4@-, 6@y],
) -> (f32[2@-, 8@-, 6@-]) {
  %y = convolution(%x, %w, strides=[1], padding=[[0, 0]], lhs_dilation=[1], rhs_dilation=[1], \
dims="b0f,0io->b0f", groups=2, batch_groups=1) : f32[2@-, 8@-, 6@-]
  return %y
}
""")
    assert reasons(module)[1] == (
        "operand 1 of %y = convolution needs [-, -, x:(1)2]: dimension 2 of %x is not sharded "
        "over y"
    )


def test_spatial_dimensions_of_convolutions_have_no_letter() -> None:
    """Digits name them in the operation."""
    module = run_reshard("""\
func @f(
  %x: f32[4@-, 8@x, 8@-],
  %w: f32[1@-, 8@-, 4096@x],
) -> (f32[4@-, 8@-, 4096@x]) {
  %y = convolution(%x, %w, strides=[1], padding=[[0, 0]], lhs_dilation=[1], rhs_dilation=[1], \
dims="b0f,0io->b0f", groups=1, batch_groups=1) : f32[4@-, 8@-, 4096@x]
  return %y
}
""")
    assert reasons(module) == [
        "operand 0 of %y = convolution needs [-, -, -]: x shards 'o', not dimension 1 of %x"
    ]


RULE = "([i, 1]) -> ([i, 1]) {i=8} need-replication={i}"


def opaque_call(rule: str, attributes: str = "") -> str:
    return f"""\
func @f(
  %a: f32[8@x, 4@y],
) -> (f32[8@-, 4@-]) {{
  %r = opaque(%a, operation="o", head="o(%)", attributes="{attributes}", types="", \
rule="{rule}") : f32[8@-, 4@-]
  return %r
}}
"""


def test_dimensions_without_factors_keep_their_axes() -> None:
    module = InsertExplicitReshards()(parse(MESH + opaque_call(RULE)))
    assert reasons(module) == [
        "operand 0 of %r = opaque needs [-, y]: dimension 0 of %a must be unsharded"
    ]


def test_shardy_does_not_align_operations_with_a_custom_rule() -> None:
    text = MESH + opaque_call(RULE, "sdy.sharding_rule = #sdy.op_sharding_rule<..., custom>")
    assert str(InsertExplicitReshards()(parse(text))) == text


@pytest.mark.parametrize(
    "op",
    ["roll(%a, shift=1, dim=0)", "pad(%a, %v, low=[1, 0], high=[-1, 0], interior=[0, 0])"],
    ids=["exchanged rows", "rows of shards"],
)
def test_collectives_name_the_dimension_along_which_they_run(op: str) -> None:
    module = Partition()(
        parse(f"""\
{MESH}\
func @f(
  %a: f32[8@x, 4@{"y" if "roll" in op else "-"}],
  %v: f32[],
) -> (f32[8@x, 4@{"y" if "roll" in op else "-"}]) {{
  %r = {op} : f32[8@x, 4@{"y" if "roll" in op else "-"}]
  return %r
}}
""")
    )
    found = {each.why for each in module.main.body.walk() if each.spec.collective}
    name = op.partition("(")[0]
    assert found == {f"%r = {name} runs along dimension 0 of %a, which is sharded over x"}


def test_any_and_all_are_unreduced_by_extremes() -> None:
    module = run_reshard("""\
func @f(
  %a: bool[8@x, 4@-],
) -> (bool[4@-], bool[4@-]) {
  %p = any(%a, dims=[0]) : bool[4@-]
  %q = all(%a, dims=[0]) : bool[4@-]
  return %p, %q
}
""")
    assert body(module) == [
        "%p.partial = any(%a, dims=[0]) : bool[4@-] unreduced[max](x)",
        "%p = reshard(%p.partial) : bool[4@-]",
        "%q.partial = all(%a, dims=[0]) : bool[4@-] unreduced[min](x)",
        "%q = reshard(%q.partial) : bool[4@-]",
    ]


def test_shardy_moves_no_data_between_meshes_with_other_axes() -> None:
    text = """\
func @f(
  %a: f32[8@x],
  %b: f32[8@z] on @n,
) -> (f32[8@x]) {
  %d = add(%a, %b) : f32[8@x]
  return %d
}
"""
    text = MESH.replace("\n\n", "\nmesh @n = [z=8]\n\n") + text
    assert str(InsertExplicitReshards()(parse(text))) == text


def test_shardy_does_not_move_unsharded_values_to_another_device_order() -> None:
    module = InsertExplicitReshards()(parse("""\
mesh @m = [x=2, y=2]
mesh @n = [x=2, y=2] devices=[3, 2, 1, 0]

func @f(
  %a: f32[8@x],
  %c: f32[8@-] on @n,
) -> (f32[8@x], f32[8@-]) {
  %b = exp(%a) : f32[8@x]
  %d = exp(%c) : f32[8@-]
  return %b, %d
}
"""))  # fmt: skip
    assert body(module)[1:] == ["%b = exp(%a) : f32[8@x]", "%d = exp(%c) : f32[8@-]"]


def test_shardy_moves_data_between_meshes_with_other_device_orders() -> None:
    module = InsertExplicitReshards()(parse("""\
mesh @m = [x=2, y=2]
mesh @n = [x=2, y=2] devices=[3, 2, 1, 0]

func @f(
  %a: f32[8@x],
  %b: f32[8@x] on @n,
  %c: f32[8@-] on @n,
) -> (f32[8@x], f32[8@x]) {
  %d = add(%a, %b) : f32[8@x]
  %e = add(%a, %c) : f32[8@x]
  return %d, %e
}
"""))  # fmt: skip
    reshards = [op for op in module.main.body.ops if op.name == "reshard"]
    assert [str(op.operands[0].name) for op in reshards][:1] == ["b"]
    assert {op.result.sharding.mesh for op in reshards if op.result.sharding} == {"m"}
    assert [line for line in body(module) if "reshard(%b" in line] == [
        "%b.sharded = reshard(%b) : f32[8@x]"
    ]


def test_shardy_leaves_values_without_a_sharding_unsharded() -> None:
    module = InsertExplicitReshards()(parse(MESH + """\
func @f(
  %a: f32[8@x],
  %b: f32[8],
) -> (f32[8]) {
  %c = add(%a, %b) : f32[8@x]
  %d = exp(%b) : f32[8]
  %e = mul(%b, %d) : f32[8]
  return %e
}
"""))  # fmt: skip
    assert body(module) == [
        "%b.sharded = reshard(%b) : f32[8@x]",
        "%c = add(%a, %b.sharded) : f32[8@x]",
        "%d = exp(%b) : f32[8@-]",
        "%e = mul(%b, %d) : f32[8@-]",
    ]
