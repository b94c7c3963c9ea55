"""`sink-reshards` and `share-reshards`: values reach their uses with few cheap reshards."""

from hypothesis import given, settings, strategies as st

from shardir.cost.communication import list_collectives
from shardir.passes import Partition, Pipeline, ShareReshards, SinkReshards
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.passes.op_lines import body
from tests.passes.sharded_evaluation import annotate_randomly, check_agreement
from tests.programs.strategies import modules

MESH = "mesh @m = [x=4, y=2]\n\n"
AFTER_PROPAGATE = DEFAULT_PIPELINE.partition(",")[2]


def after(pass_: SinkReshards | ShareReshards, text: str) -> list[str]:
    module = pass_(parse(MESH + text))
    verify(module)
    verify(Partition()(module))
    return body(module)


SUMS = """\
func @f(
  %a: f32[8@-, 4@x],
  %b: f32[4@x, 8@-],
) -> (f32[8@x, 8@-]) {
  %c.partial = dot(%a, %b, dims="ik,kj->ij") : f32[8@-, 8@-] unreduced(x)
  %c = reshard(%c.partial) : f32[8@x, 8@-]
  %d.partial = dot(%b, %a, dims="ki,jk->ij") : f32[8@-, 8@-] unreduced(x)
"""


def test_two_sums_share_one_reduce_scatter() -> None:
    lines = after(
        SinkReshards(),
        SUMS
        + """\
  %d = reshard(%d.partial) : f32[8@x, 8@-]
  %e = add(%c, %d) : f32[8@x, 8@-]
  return %e
}
""",
    )
    assert lines[-2:] == [
        "%e.partial = add(%c.partial, %d.partial) : f32[8@-, 8@-] unreduced(x)",
        "%e = reshard(%e.partial) : f32[8@x, 8@-]",
    ]


def test_a_transpose_after_a_reshard_does_not_prevent_merging() -> None:
    lines = after(
        SinkReshards(),
        SUMS
        + """\
  %d = reshard(%d.partial) : f32[8@-, 8@x]
  %t = transpose(%d, perm=[1, 0]) : f32[8@x, 8@-]
  %e = add(%c, %t) : f32[8@x, 8@-]
  return %e
}
""",
    )
    assert lines[-3:] == [
        "%t.before_reshard = transpose(%d.partial, perm=[1, 0]) : f32[8@-, 8@-] unreduced(x)",
        "%e.partial = add(%c.partial, %t.before_reshard) : f32[8@-, 8@-] unreduced(x)",
        "%e = reshard(%e.partial) : f32[8@x, 8@-]",
    ]


def test_products_of_sums_are_not_sums_of_products() -> None:
    text = (
        SUMS
        + """\
  %d = reshard(%d.partial) : f32[8@x, 8@-]
  %e = mul(%c, %d) : f32[8@x, 8@-]
  return %e
}
"""
    )
    assert str(SinkReshards()(parse(MESH + text))) == MESH + text


def test_a_chain_of_reshards_is_one() -> None:
    lines = after(
        ShareReshards(),
        """\
func @f(
  %a: f32[8@-, 4@x],
  %b: f32[4@x, 8@-],
) -> (f32[8@x, 8@-]) {
  %c.partial = dot(%a, %b, dims="ik,kj->ij") : f32[8@-, 8@-] unreduced(x)
  %c = reshard(%c.partial) : f32[8@-, 8@-]
  %c.sharded = reshard(%c) : f32[8@x, 8@-]
  return %c.sharded
}
""",
    )
    assert lines[1:] == ["%c.sharded = reshard(%c.partial) : f32[8@x, 8@-]"]


def test_a_gathered_value_is_not_sent_again() -> None:
    lines = after(
        ShareReshards(),
        """\
func @f(
  %a: f32[8@x, 8@-],
) -> (f32[8@-, 8@x], f32[8@-, 8@-]) {
  %a.resharded = reshard(%a) : f32[8@-, 8@x]
  %b = exp(%a.resharded) : f32[8@-, 8@x]
  %a.unsharded = reshard(%a) : f32[8@-, 8@-]
  %c = exp(%a.unsharded) : f32[8@-, 8@-]
  return %b, %c
}
""",
    )
    assert lines == [
        "%a.unsharded = reshard(%a) : f32[8@-, 8@-]",
        "%a.resharded = reshard(%a.unsharded) : f32[8@-, 8@x]",
        "%b = exp(%a.resharded) : f32[8@-, 8@x]",
        "%c = exp(%a.unsharded) : f32[8@-, 8@-]",
    ]


def test_a_tensor_and_its_transpose_share_a_gather() -> None:
    lines = after(
        ShareReshards(),
        """\
func @f(
  %a: f32[8@x, 4@-],
) -> (f32[8@-, 4@-], f32[4@-, 8@-]) {
  %a.unsharded = reshard(%a) : f32[8@-, 4@-]
  %b = exp(%a.unsharded) : f32[8@-, 4@-]
  %t = transpose(%a, perm=[1, 0]) : f32[4@-, 8@x]
  %t.unsharded = reshard(%t) : f32[4@-, 8@-]
  return %b, %t.unsharded
}
""",
    )
    assert [line for line in lines if "reshard" in line] == [
        "%a.unsharded = reshard(%a) : f32[8@-, 4@-]"
    ]


def test_constants_are_created_with_the_required_sharding() -> None:
    lines = after(
        ShareReshards(),
        """\
func @f() -> (f32[8@-], f32[8@x]) {
  %z = constant(value=0.0) : f32[8@x]
  %z.unsharded = reshard(%z) : f32[8@-]
  return %z.unsharded, %z
}
""",
    )
    assert lines == [
        "%z = constant(value=0.0) : f32[8@x]",
        "%z.unsharded = constant(value=0.0) : f32[8@-]",
    ]


LOOP = """\
func @f(
  %a: f32[8@x],
  %b: f32[8@-],
) -> (f32[8@-]) {
  %c = scan(%b, carries=1, length=5) : f32[8@-] {
    (%d: f32[8@-]) =>
    %a.unsharded = reshard(%a) : f32[8@-]
    %e = mul(%d, %a.unsharded) : f32[8@-]
    yield %e
  }
  return %c
}
"""


def test_a_loop_invariant_reshard_is_hoisted() -> None:
    module = ShareReshards()(parse(MESH + LOOP))
    assert [c.executions for c in list_collectives(Partition()(parse(MESH + LOOP)))] == [5]
    assert [c.executions for c in list_collectives(Partition()(module))] == [1]


def test_a_reshard_is_not_hoisted_out_of_a_branch() -> None:
    text = """\
func @f(
  %p: bool[],
  %a: f32[8@x],
) -> (f32[8@-]) {
  %c = case(%p) : f32[8@-] {
    %z = constant(value=0.0) : f32[8@-]
    yield %z
  } {
    %a.unsharded = reshard(%a) : f32[8@-]
    yield %a.unsharded
  }
  return %c
}
"""
    assert str(ShareReshards()(parse(MESH + text))) == MESH + text


@settings(max_examples=30)
@given(st.data())
def test_programs_keep_their_results(data: st.DataObject) -> None:
    module = annotate_randomly(data, data.draw(modules()), lambda _: True)
    check_agreement(module, AFTER_PROPAGATE)


def test_an_all_reduce_with_a_sharded_use_is_a_reduce_scatter() -> None:
    text = """\
func @f(
  %a: f32[8@-, 4@x],
  %b: f32[4@x, 8@-],
) -> (f32[8@x, 8@-]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[8@-, 8@-]
  %d = sharding_constraint(%c) : f32[8@x, 8@-]
  return %d
}
"""
    module = Pipeline.parse(AFTER_PROPAGATE)(parse(MESH + text))
    assert [c.kind for c in list_collectives(module)] == ["reduce-scatter"]


def test_a_transpose_of_integers_does_not_delay_a_sum() -> None:
    """Only linear operations accept unreduced values, and linearity is declared for floats only."""
    lines = after(
        ShareReshards(),
        """\
func @f(
  %a: i32[],
) -> (i32[] unreduced(x), i32[] unreduced(x)) {
  %b = reshard(%a) : i32[] unreduced(x)
  %c = transpose(%a, perm=[]) : i32[]
  %d = reshard(%c) : i32[] unreduced(x)
  return %b, %d
}
""",
    )
    assert lines[1:] == [
        "%c = transpose(%a, perm=[]) : i32[]",
        "%d = reshard(%c) : i32[] unreduced(x)",
    ]


TWICE = """\
func @f(
  %x: f32[8@x, 4],
  %y: f32[8@x, 4],
) -> (f32[16, 4]) {
"""


def test_a_value_concatenated_twice_is_gathered_before() -> None:
    lines = after(
        ShareReshards(),
        TWICE
        + """\
  %c = concatenate(%x, %x, dim=0) : f32[16@x, 4]
  %c.unsharded = reshard(%c) : f32[16@-, 4]
  return %c.unsharded
}
""",
    )
    assert [line for line in lines if "%c = " not in line] == [
        "%x.unsharded = reshard(%x) : f32[8@-, 4]",
        "%c.unsharded = concatenate(%x.unsharded, %x.unsharded, dim=0) : f32[16@-, 4]",
    ]


def test_a_concatenation_is_gathered_as_one_value() -> None:
    """Both ways send equal bytes; this one has one reshard instead of two."""
    text = """\
  %c = concatenate(%x, %y, dim=0) : f32[16@x, 4]
  %c.unsharded = reshard(%c) : f32[16@-, 4]
  return %c.unsharded
}
"""
    assert "%c.unsharded = reshard(%c) : f32[16@-, 4]" in after(ShareReshards(), TWICE + text)


PADDED = """\
  %i = iota(dim=0) : i32[8@x, 4]
  %b = broadcast(%n, dims=[]) : i32[8@x, 4]
  %m = lt(%i, %b) : bool[8@x, 4]
  %p = select(%m, %FIRST, %z) : f32[8@x, 4]
  %c = concatenate(%x, %p, dim=0) : f32[16@x, 4]
  %c.unsharded = reshard(%c) : f32[16@-, 4]
  return %c.unsharded
}
"""
SCALARS = TWICE.replace("\n)", "\n  %n: i32[],\n)") + "  %z = constant(value=1.0) : f32[8@x, 4]\n"


def test_what_every_device_can_compute_is_not_gathered() -> None:
    lines = after(ShareReshards(), SCALARS + PADDED.replace("FIRST", "z"))
    assert [line for line in lines if ".unsharded" in line.partition(" = ")[0]] == [
        "%x.unsharded = reshard(%x) : f32[8@-, 4]",
        "%z.unsharded = constant(value=1.0) : f32[8@-, 4]",
        "%i.unsharded = iota(dim=0) : i32[8@-, 4]",
        "%b.unsharded = broadcast(%n, dims=[]) : i32[8@-, 4]",
        "%m.unsharded = lt(%i.unsharded, %b.unsharded) : bool[8@-, 4]",
        "%p.unsharded = select(%m.unsharded, %z.unsharded, %z.unsharded) : f32[8@-, 4]",
        "%c.unsharded = concatenate(%x.unsharded, %p.unsharded, dim=0) : f32[16@-, 4]",
    ]
    assert "%c.unsharded = reshard(%c) : f32[16@-, 4]" in after(
        ShareReshards(), SCALARS + PADDED.replace("FIRST", "y")
    )


DIAGONAL = """\
func @f(
  %w: f32[8@y, 8@x],
) -> (f32[7@y]) {
  %w.unsharded = reshard(%w) : f32[8@y, 8@-]
  %l = reshape(%w.unsharded) : f32[64@y]
  %d = slice(%l, starts=[8], strides=[9]) : f32[7@y]
"""


def test_a_diagonal_is_sent_in_place_of_its_matrix() -> None:
    lines = after(ShareReshards(), DIAGONAL + "  return %d\n}\n")
    start = next(i for i, line in enumerate(lines) if "iota" in line)
    assert lines[start:] == [
        "%0 = iota(dim=0) : i32[8@y, 8@x]",
        "%1 = iota(dim=1) : i32[8@y, 8@x]",
        "%2 = constant(value=-1) : i32[8@y, 8@x]",
        "%3 = add(%0, %2) : i32[8@y, 8@x]",
        "%4 = eq(%3, %1) : bool[8@y, 8@x]",
        "%5 = bitcast(%w) : u32[8@y, 8@x]",
        "%6 = constant(value=0) : u32[8@y, 8@x]",
        "%7 = select(%4, %5, %6) : u32[8@y, 8@x]",
        "%8 = sum(%7, dims=[1]) : u32[8@y] unreduced(x)",
        "%9 = reshard(%8) : u32[8@y]",
        "%10 = slice(%9, starts=[1], strides=[1]) : u32[7@y]",
        "%d = bitcast(%10) : f32[7@y]",
    ]


def test_a_matrix_that_is_gathered_anyway_has_its_diagonal_there() -> None:
    text = DIAGONAL.replace("-> (f32[7@y])", "-> (f32[7@y], f32[8@y, 8])")
    lines = after(ShareReshards(), text + "  return %d, %w.unsharded\n}\n")
    assert "%d = slice(%l, starts=[8], strides=[9]) : f32[7@y]" in lines


def test_a_concatenation_with_sharded_uses_stays_sharded() -> None:
    text = """\
  %c = concatenate(%x, %x, dim=0) : f32[16@x, 4]
  %c.unsharded = reshard(%c) : f32[16@-, 4]
  %d = neg(%c) : f32[16@x, 4]
  %d.unsharded = reshard(%d) : f32[16@-, 4]
  %e = add(%c.unsharded, %d.unsharded) : f32[16@-, 4]
  return %e
}
"""
    assert "%c.unsharded = reshard(%c) : f32[16@-, 4]" in after(ShareReshards(), TWICE + text)
