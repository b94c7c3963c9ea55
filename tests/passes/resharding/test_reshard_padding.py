"""`reshard`: shardings that need padding, and operations that support none."""

import pytest

from shardir.errors import PartitionError
from shardir.passes import Pipeline, Reshard
from shardir.text.parser import parse
from tests.passes.op_lines import body, reasons
from tests.passes.resharding.reshard_programs import MESH, run_reshard

UNEVEN = """\
func @f(
  %a: f32[6@-],
  %b: f32[3@-],
) -> (f32[6], f32[3]) {
  %c = exp(%a) : f32[6@(y, x)]
  %d = exp(%b) : f32[3@x]
  return %c, %d
}
"""


def test_indivisible_shardings_are_padded() -> None:
    module = run_reshard(UNEVEN)
    assert body(module) == [
        "%a.sharded = reshard(%a) : f32[6@(y, x)]",
        "%c = exp(%a.sharded) : f32[6@(y, x)]",
        "%b.sharded = reshard(%b) : f32[3@x]",
        "%d = exp(%b.sharded) : f32[3@x]",
    ]
    assert reasons(module) == [
        "operand 0 of %c = exp needs [(y, x)]; dimension 0 of %a.sharded is padded from 6 to 8",
        "operand 0 of %d = exp needs [x]; dimension 0 of %b.sharded is padded from 3 to 4",
    ]


def test_indivisible_shardings_are_trimmed_on_request() -> None:
    assert body(Reshard(uneven="replicate")(parse(MESH + UNEVEN))) == [
        "%a.sharded = reshard(%a) : f32[6@y]",
        "%c = exp(%a.sharded) : f32[6@y]",
        "%d = exp(%b) : f32[3@-]",
    ]


def test_indivisible_shardings_are_errors_on_request() -> None:
    with pytest.raises(PartitionError) as caught:
        Pipeline.parse("reshard{uneven=error}")(parse(MESH + UNEVEN))
    assert str(caught.value) == (
        "dimension 0 of %c has size 6, which is not divisible by 8: it is sharded over (y, x); "
        "pad it to 8, shard it otherwise, or set uneven=pad"
    )


UNRULED = """\
func @f(
  %a: f32[8@x],
) -> (f32[8@-]) {
  %b = opaque(%a, operation="x.y", head="x.y %", attributes="", types="") : f32[8@-]
  return %b
}
"""


def test_operations_without_a_rule_are_replicated_and_report_bytes() -> None:
    (move, _) = Reshard()(parse(MESH + UNRULED)).main.body.ops
    assert move.why == (
        "operand 0 of %b = opaque cannot be sharded and needs [-], "
        "for which each device receives 24 bytes"
    )


def test_operations_without_a_rule_are_errors_on_request() -> None:
    with pytest.raises(PartitionError) as error:
        Pipeline.parse("reshard{on_fallback=error}")(parse(MESH + UNRULED))
    assert str(error.value) == (
        "opaque has no sharding rule, and each device would receive 24 bytes of %a, which is "
        "sharded [x]; state its rule, constrain %a to be replicated, or set on_fallback=replicate"
    )


def test_operations_without_a_rule_may_move_operands_without_elements() -> None:
    text = UNRULED.replace("8@x]", "8@x, 0@-]")
    module = Pipeline.parse("reshard{on_fallback=error}")(parse(MESH + text))
    assert body(module)[0] == "%a.unsharded = reshard(%a) : f32[8@-, 0@-]"
    assert reasons(module) == ["operand 0 of %b = opaque cannot be sharded and needs [-, -]"]


def test_operations_without_a_rule_and_without_operands_have_unsharded_results() -> None:
    module = run_reshard("""\
func @f() -> (f32[8@x]) {
  %b = opaque(operation="x.y", head="x.y %", attributes="", types="") : f32[8@x]
  return %b
}
""")
    assert body(module)[1:] == ["%b = reshard(%b.before_reshard) : f32[8@x]"]


def test_reshapes_without_elements_have_unsharded_operands() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[4@x, 0@-],
) -> (f32[3@-, 0@-]) {
  %b = reshape(%a) : f32[3@-, 0@-]
  return %b
}
""")
    assert body(module)[0] == "%a.unsharded = reshard(%a) : f32[4@-, 0@-]"


def test_a_loop_does_not_state_the_padding_of_its_results() -> None:
    """An operation of its body does."""
    module = run_reshard("""\
func @f(
  %a: f32[2@-],
  %b: f32[6@-],
) -> (f32[2@-], f32[3@-, 6@x]) {
  %c, %d = scan(%a, carries=1, length=3) : f32[2@-], f32[3@-, 6@x] {
    (%k: f32[2@-]) =>
    %e = exp(%b) : f32[6@x]
    yield %k, %e
  }
  return %c, %d
}
""")
    (loop,) = module.main.body.ops
    assert loop.why == ""
    assert reasons(module) == [
        "operand 0 of %e = exp needs [x]; dimension 0 of %b.sharded is padded from 6 to 8"
    ]


def test_created_values_state_where_their_padding_begins() -> None:
    module = run_reshard("""\
func @f() -> (i32[6@x]) {
  %i = iota(dim=0) : i32[6@x]
  %j = neg(%i) : i32[6@x]
  return %j
}
""")
    assert [op.why for op in module.main.body.ops] == [
        "dimension 0 of %i is padded from 6 to 8", "",
    ]  # fmt: skip


def test_operations_without_padding_support_are_errors() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[6@x, 8@-],
) -> (f32[48@-]) {
  %b = reshape(%a) : f32[48@-]
  return %b
}
""")
    assert reasons(module)[0] == (
        "operand 0 of %b = reshape needs [-, -], since 6 does not divide over x and "
        "reshape cannot pad"
    )
