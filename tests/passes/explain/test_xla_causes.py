"""The causes of XLA's collectives by the primitives that XLA states."""

import pytest

from shardir.hlo.parser import parse_hlo
from shardir.passes.explain.xla_causes import XlaCause, XlaCauseKind, find_xla_causes

GROUPS = "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true"


def cause_of(collective: str, op_name: str) -> XlaCause:
    """Return the cause of a collective whose result a computation uses."""
    module = parse_hlo(
        "HloModule m, num_partitions=2\n\nENTRY main {\n  p = f32[8]{0} parameter(0)\n"
        f'  c = {collective}, {GROUPS}, metadata={{op_name="{op_name}"}}\n'
        "  ROOT r = f32[] reduce(c), dimensions={0}\n}\n"
    )
    return find_xla_causes(module)["c"]


@pytest.mark.parametrize(
    ("op_name", "text"),
    [
        (
            "jit(f)/add",
            "add needs one sharding for its operands and results: XLA gathers an array with "
            "another sharding",
        ),
        (
            "jit(f)/sort",
            "sort uses all elements of a dimension that its operand has sharded",
        ),
    ],
)
def test_elementwise_operations_do_not_use_all_elements(op_name: str, text: str) -> None:
    cause = cause_of("f32[8]{0} all-gather(p), dimensions={0}", op_name)
    assert (cause.kind, cause.text) == (XlaCauseKind.OPERAND, text)


@pytest.mark.parametrize(
    ("primitive", "does"), [("reduce_sum", "sums over"), ("reduce_max", "reduces")]
)
def test_only_sums_are_called_sums(primitive: str, does: str) -> None:
    cause = cause_of("f32[8]{0} all-reduce(p)", f"jit(f)/{primitive}")
    expected = f"{primitive} {does} a sharded dimension: each device has a partial result"
    assert (cause.kind, cause.text) == (XlaCauseKind.PARTIAL_SUMS, expected)


def test_a_line_with_take_along_axis_has_no_hint_to_use_it() -> None:
    assert cause_of("f32[8]{0} all-reduce(p)", "jit(f)/gather").hint == (
        "index with jnp.take_along_axis or jax.vmap if an index is jnp.arange, so that XLA sees "
        "that each shard uses its own elements only; otherwise leave the indexed dimension "
        "unsharded"
    )
    assert cause_of("f32[8]{0} all-reduce(p)", "jit(f)/jit(take_along_axis)/gather").hint == ""
