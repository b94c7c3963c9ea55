"""`partition`: local types, and exactly the collectives that the reshards require."""

import re
from dataclasses import replace

import numpy as np
import pytest

from shardir import sharding_rule
from shardir.errors import PartitionError
from shardir.extend import define_op
from shardir.interpret.interpreter import run
from shardir.ir.builder import Builder
from shardir.ir.module import Module, Value
from shardir.ir.operation import Partitioning
from shardir.op_rules.partitioning import LocalOp
from shardir.passes import Partition, Pipeline, Reshard
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.call_count import count_calls
from tests.passes.op_lines import body
from tests.passes.sharded_evaluation import check_agreement
from tests.registries import restored_registries

MESH = "mesh @m = [x=4, y=2]\n\n"


def run_partition(text: str) -> Module:
    module = Pipeline.parse("reshard,partition,dce")(parse(MESH + text))
    verify(module)
    return module


def kinds(module: Module) -> list[str]:
    return [op.name for op in module.main.body.walk() if op.spec.spmd]


def test_types_become_local_and_the_function_states_global_types() -> None:
    assert str(
        run_partition("""\
func @f(
  %a: f32[8@x, 4@-],
  %b: f32[4@-, 8@y],
) -> (f32[8@x, 8@y]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[8@x, 8@y]
  return %c
}
""")
    ) == MESH + (
        """\
spmd func @f(
  %a: f32[2, 4] of f32[8@x, 4@-],
  %b: f32[4, 4] of f32[4@-, 8@y],
) -> (f32[2, 4] of f32[8@x, 8@y]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[2, 4]
  return %c
}
"""
    )


def test_an_unreduced_value_becomes_an_all_reduce() -> None:
    module = run_partition("""\
func @f(
  %a: f32[8@y, 4@x],
  %b: f32[4@x, 8@-],
) -> (f32[8@y, 8@-]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[8@y, 8@-] loc("mlp.py":3:1)
  return %c
}
""")
    assert body(module) == [
        '%c.partial = dot(%a, %b, dims="ik,kj->ij") : f32[4, 8]',
        "%c = all-reduce(%c.partial, axes=[x], op=add) : f32[4, 8]",
    ]
    reduced = module.main.body.ops[-1]
    assert reduced.why == "sum over 'k' of %c = dot"
    assert str(reduced.loc) == "mlp.py:3"


def test_an_unreduced_value_with_a_sharded_use_becomes_a_reduce_scatter() -> None:
    module = run_partition("""\
func @f(
  %a: f32[64@x],
) -> (f32[16@x]) {
  %b = reshape(%a) : f32[4@x, 16@-]
  %c = sum(%b, dims=[0]) : f32[16@x]
  return %c
}
""")
    assert body(module)[-1] == "%c = reduce-scatter(%c.partial, dim=0, axes=[x], op=add) : f32[4]"


def test_intermediate_results_have_unique_names() -> None:
    module = run_partition("""\
func @f(
  %a: f32[64@y, 128@-],
) -> (f32[64@-, 128@x]) {
  %b = reshard(%a) : f32[64@-, 128@x]
  return %b
}
""")
    assert body(module) == [
        "%b.slice = all-slice(%a, dim=1, axes=[x]) : f32[32, 32]",
        "%b = all-gather(%b.slice, dim=0, axes=[y]) : f32[64, 32]",
    ]


def test_sub_axes_are_printed() -> None:
    module = run_partition("""\
func @f(
  %a: f32[8@x, 4@-],
) -> (f32[8@x:(1)2, 4@-]) {
  %b = reshard(%a) : f32[8@x:(1)2, 4@-]
  return %b
}
""")
    assert body(module) == ["%b = all-gather(%a, dim=0, axes=[x:(2)2]) : f32[4, 4]"]


def test_iota_starts_at_the_offset_of_the_shard() -> None:
    module = run_partition("""\
func @f() -> (bf16[512@x]) {
  %i = iota(dim=0) : bf16[512@x]
  return %i
}
""")
    assert body(module) == [
        "%i.index = axis-index(axes=[x]) : i32[]",
        "%0 = constant(value=128) : i32[]",
        "%i.start = mul(%i.index, %0) : i32[]",
        "%1 = iota(dim=0) : i32[128]",
        "%2 = broadcast(%i.start, dims=[]) : i32[128]",
        "%3 = add(%1, %2) : i32[128]",
        "%i = convert(%3) : bf16[128]",
    ]
    (counted,) = run(module, [])
    np.testing.assert_array_equal(counted, np.arange(512).astype(counted.dtype))


def test_devices_generate_random_bits_of_their_shards() -> None:
    module = run_partition("""\
func @f(
  %k: key[],
) -> (u32[8@x, 6@-]) {
  %r = random_bits(%k, scheme=partitionable) : u32[8@x, 6@-]
  return %r
}
""")
    assert kinds(module) == ["axis-index", "random_bits_at"]


def test_shards_of_a_constant_are_sliced() -> None:
    module = run_partition("""\
func @f() -> (i32[4@x]) {
  %c = constant(value=dense(i32, [1, 2, 3, 4])) : i32[4@x]
  %z = constant(value=7) : i32[4@x]
  %s = add(%c, %z) : i32[4@x]
  return %s
}
""")
    assert body(module) == [
        "%c.unsharded = constant(value=dense(i32, [1, 2, 3, 4])) : i32[4]",
        "%c = all-slice(%c.unsharded, dim=0, axes=[x]) : i32[1]",
        "%z = constant(value=7) : i32[1]",
        "%s = add(%c, %z) : i32[1]",
    ]


def test_a_gather_from_a_sharded_table_is_a_sum_of_one_contribution() -> None:
    module = run_partition("""\
func @f(
  %table: f32[8@x, 4@y],
  %ids: i32[6, 1],
) -> (f32[6, 4@y]) {
  %r = gather(%table, %ids, offset_dims=[1], collapsed_dims=[0], start_index_map=[0]) : f32[6, 4@y]
  return %r
}
""")
    assert [k for k in kinds(module) if k != "axis-index"] == ["all-reduce"]


def test_a_scatter_into_a_sharded_table_needs_no_communication() -> None:
    module = run_partition("""\
func @f(
  %table: f32[8@x, 4@y],
  %row: f32[1, 4@y],
  %i: i32[],
  %j: i32[],
) -> (f32[8@x, 4@y]) {
  %r = dynamic_update_slice(%table, %row, %i, %j) : f32[8@x, 4@y]
  return %r
}
""")
    assert set(kinds(module)) == {"axis-index"}


def test_groups_of_a_convolution_are_sharded() -> None:
    module = run_partition("""\
func @f(
  %x: f32[2, 8, 8@x],
  %w: f32[3, 1, 8@x],
) -> (f32[2, 6, 8@x]) {
  %y = convolution(%x, %w, strides=[1], padding=[[0, 0]], lhs_dilation=[1], rhs_dilation=[1], \
dims="b0f,0io->b0f", groups=8, batch_groups=1) : f32[2, 6, 8@x]
  return %y
}
""")
    (op,) = module.main.body.ops
    assert op.attrs["groups"] == 2


@pytest.mark.parametrize("reduction", ["", "[max]", "[min]", "[mul]"])
@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_results_may_be_unreduced(reduction: str, dtype: str) -> None:
    module = parse(
        MESH
        + f"""\
func @f(
  %a: {dtype}[8@x],
) -> ({dtype}[8@-]) {{
  %b = neg(%a) : {dtype}[8@-] unreduced{reduction}(x)
  %c = reshard(%b) : {dtype}[8@-] unreduced{reduction}(x, y)
  %d = abs(%c) : {dtype}[8@-]
  return %d
}}
"""
    )
    check_agreement(module, "reshard,partition")
    program = Pipeline.parse("reshard,partition,cse,dce")(module)
    assert kinds(program) == ["all-gather", "axis-index", "axis-index", "all-reduce"]


def test_a_sum_stays_unreduced_on_request() -> None:
    module = run_partition("""\
func @f(
  %a: f32[8@x, 4@y],
) -> (f32[]) {
  %c = sum(%a, dims=[0, 1]) : f32[] unreduced(x)
  %d = reshard(%c) : f32[]
  return %d
}
""")
    assert body(module) == [
        "%c.partial = sum(%a, dims=[0, 1]) : f32[]",
        "%c = all-reduce(%c.partial, axes=[y], op=add) : f32[]",
        "%d = all-reduce(%c, axes=[x], op=add) : f32[]",
    ]


def test_mismatched_shardings_without_reshard_are_errors() -> None:
    with pytest.raises(PartitionError) as caught:
        Partition()(parse(MESH + """\
func @f(
  %a: f32[8@-, 4@x],
  %b: f32[4@y, 8@-],
) -> (f32[8, 8]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[8@-, 8@-]
  return %c
}
"""))  # fmt: skip
    assert str(caught.value) == (
        "dot shards its factor 'k' over x and over y; "
        "run 'reshard' before 'partition', or constrain %c"
    )


def test_incomplete_sums_without_reshard_are_errors() -> None:
    with pytest.raises(PartitionError) as caught:
        Partition()(parse(MESH + """\
func @f(
  %a: f32[8@x],
) -> (f32[]) {
  %c = sum(%a, dims=[0]) : f32[]
  return %c
}
"""))  # fmt: skip
    assert str(caught.value) == (
        "sum leaves a pending reduction that no `reshard` completes; run 'reshard' before "
        "'partition', or constrain %c"
    )


def test_complex_values_cannot_be_unreduced_products() -> None:
    with pytest.raises(PartitionError) as caught:
        run_partition("""\
func @f(
  %a: c64[8@-],
) -> (c64[8@-]) {
  %b = log(%a) : c64[8@-] unreduced[mul](x)
  return %b
}
""")
    assert str(caught.value) == (
        "%b cannot become unreduced by `mul`: infinite complex numbers times 1 are NaN; "
        "remove `unreduced[mul]`"
    )


def chain(devices: int, count: int) -> Module:
    lines = [f"mesh @m = [x={devices}, y={devices}]", "", "func @f("]
    lines += [
        "  %h: f32[8192@x, 8192@-],",
        "  %w: f32[8192@-, 8192@y],",
        ") -> (f32[8192, 8192]) {",
    ]
    at = "h"
    for i in range(count):
        lines.append(f'  %{i}.p = dot(%{at}, %w, dims="ik,kj->ij") : f32[8192@x, 8192@y]')
        lines.append(f"  %{i}.t = tanh(%{i}.p) : f32[8192@x, 8192@-]")
        at = f"{i}.t"
    lines += [f"  return %{at}", "}"]
    return parse("\n".join(lines))


def test_the_work_is_independent_of_devices_and_linear_in_operations() -> None:
    def work(module: Module) -> int:
        return count_calls(lambda: Partition()(Reshard()(module)))

    work(chain(2, 10))
    base = work(chain(2, 200))
    assert work(chain(64, 200)) < 1.1 * base
    assert work(chain(2, 800)) < 4.4 * base


def test_a_barrier_keeps_the_sharding_of_each_value() -> None:
    module = run_partition("""\
func @f(
  %a: f32[8@x],
  %b: f32[4@x],
) -> (f32[8@x], f32[4@x]) {
  %c, %d = optimization_barrier(%a, %b) : f32[8@x], f32[4@x]
  return %c, %d
}
""")

    assert body(module) == ["%c, %d = optimization_barrier(%a, %b) : f32[2], f32[1]"]


def test_exchanges_within_an_operation_state_their_factor() -> None:
    module = run_partition("""\
func @f(
  %a: f32[8@x, 4@y],
) -> (f32[8@x, 4@y]) {
  %b = roll(%a, shift=1, dim=0) : f32[8@x, 4@y]
  return %b
}
""")
    assert [(op.name, op.why) for op in module.main.body.walk() if op.why] == [
        (
            "collective-permute",
            "%b = roll runs along dimension 0 of %a, which is sharded over x",
        )
    ]


def test_an_uneven_dimension_is_gathered_with_its_padding() -> None:
    module = run_partition("""\
func @f(
  %a: f32[6@x],
) -> (f32[6@-]) {
  %b = reshard(%a) : f32[6@-]
  return %b
}
""")
    assert body(module) == [
        "%b.gather = all-gather(%a, dim=0, axes=[x]) : f32[8]",
        "%b = slice(%b.gather, starts=[0], strides=[1]) : f32[6]",
    ]


ROWS = "update_window_dims=[], inserted_window_dims=[0], scatter_dims=[0]"
PADDED: list[tuple[str, dict[str, str]]] = [
    ("sum(%p, dims=[0, 1]) : f32[]", {"p": "-0.0"}),
    ("prod(%p, dims=[0]) : f32[3@-]", {"p": "1"}),
    # The dimension that remains may keep its padding.
    ("sum(%p, dims=[1]) : f32[6@x]", {}),
    # Products of padding are negative zeros, so that also the sum of negative zeros is one.
    ('dot(%p, %q, dims="ki,kj->ij") : f32[3@-, 3@-]', {"p": "-0.0", "q": "0"}),
    ('dot(%t, %p, dims="i,kj->ij") : f32[4@-, 3@-]', {"p": "-0.0"}),
    # Updates without effect suffice, so the padding of the indices remains.
    (f"scatter(%t, %i, %u, op=add, {ROWS}) : f32[4@-]", {"u": "-0.0"}),
    (f"scatter(%t, %i, %u, op=max, {ROWS}) : f32[4@-]", {"u": "-inf"}),
    # The local operation replaces the padding itself.
    ("argmax(%p, dim=0) : i32[3@-]", {}),
]


@pytest.mark.parametrize(("operation", "fillers"), PADDED)
def test_the_padding_of_reduced_dimensions_has_no_effect(
    operation: str, fillers: dict[str, str]
) -> None:
    result = operation.rpartition(" : ")[2]
    text = f"""{MESH}func @f(
  %a: f32[6@x, 3@-],
  %t: f32[4@-],
  %i: i32[6@x, 1@-],
  %v: f32[6@x],
) -> ({result}) {{
  %p = exp(%a) : f32[6@x, 3@-]
  %q = cos(%a) : f32[6@x, 3@-]
  %u = cosh(%v) : f32[6@x]
  %r = {operation}
  return %r
}}
"""
    check_agreement(parse(text), "reshard,partition")
    program = run_partition(text.removeprefix(MESH))
    filled = {}
    for op in program.main.body.walk():
        if op.name == "constant" and op.result.type.rank and op.result.type.dtype == "f32":
            name = re.fullmatch("the padding of %(.*) must not contribute", op.why)
            if name:
                filled[name[1]] = str(op.attrs["value"])
    assert filled == fillers


def test_the_padding_of_all_operands_is_the_identity_of_a_maximum() -> None:
    with restored_registries():
        define_op(
            "largest-sum",
            type=lambda x, y, *, result: x.with_shape(()),
            factors=lambda x, y, *, result: replace(
                sharding_rule("i, i ->", reduction="i").for_shapes([x.shape, y.shape], [()]),
                reduction="max",
            ),
            reference=lambda x, y, *, result: np.max(x + y),
        )
        text = """\
func @f(
  %a: f32[6@x],
  %b: f32[6@x],
) -> (f32[]) {
  %c = exp(%a) : f32[6@x]
  %d = cosh(%b) : f32[6@x]
  %r = largest-sum(%c, %d) : f32[]
  return %r
}
"""
        a = -np.ones(6, np.float32)
        program = run_partition(text)
        fillers = [op.attrs["value"] for op in program.main.body.walk() if op.name == "constant"]
        assert [each for each in fillers if each < 0] == [-np.inf, -np.inf]
        (got,) = run(program, [a, a])
        np.testing.assert_allclose(got, np.exp(-1) + np.cosh(1), rtol=1e-6)


def test_a_collective_keeps_the_reason_that_its_rule_states() -> None:
    def lower(b: Builder, local: LocalOp, x: Value) -> Value:
        b.why = "the reason of the rule"
        largest: Value = b.all_reduce(x, axes=local.sharding_axes(local.op.result, 0), op="max")
        return largest

    with restored_registries():
        define_op(
            "largest-shards",
            type=lambda x, *, result: x,
            factors=lambda x, *, result: sharding_rule("i -> i").for_shapes([x.shape], [x.shape]),
            partition=Partitioning(lower=lower),
        )
        module = run_partition("""\
func @f(
  %a: f32[8@x],
) -> (f32[8@x]) {
  %b = largest-shards(%a) : f32[8@x]
  return %b
}
""")
    assert [op.why for op in module.main.body.ops] == ["the reason of the rule"]


MANUAL = """\
func @f(
  %a: f32[8@x, 8@y],
) -> (f32[8@x, 8@y]) {
  %c = manual_computation(%a, axes=[x], in_axes=[[[x], []]], out_axes=[[[x], []]]) : \
f32[8@x, 8@y] {
    (%p: f32[2, 8@y]) =>
    %q = exp(%p) : f32[2, 8@y]
    %s = all-reduce(%q, axes=[x], op=add) : f32[2, 8@y]
    yield %s
  }
  return %c
}
"""


def test_a_manual_computation_becomes_its_body() -> None:
    assert body(run_partition(MANUAL)) == [
        "%q = exp(%a) : f32[2, 4]",
        "%c = all-reduce(%q, axes=[x], op=add) : f32[2, 4]",
    ]


def test_windows_are_written_to_their_shards() -> None:
    """Each device writes the elements in its shard, also of windows that begin in other shards."""
    rows = "operand_batching_dims=[0], indices_batching_dims=[0]"
    dims = f"update_window_dims=[1], inserted_window_dims=[], op=set, scatter_dims=[1], {rows}"
    module = run_partition(f"""\
func @f(
  %a: f32[2@-, 16@x],
  %i: i32[2@-, 1@-],
  %u: f32[2@-, 6@-],
) -> (f32[2@-, 16@x]) {{
  %c = scatter(%a, %i, %u, {dims}) : f32[2@-, 16@x]
  return %c
}}
""")
    assert kinds(module) == ["axis-index"]
    a, u = np.zeros((2, 16), np.float32), np.ones((2, 6), np.float32)
    (written,) = run(module, [a, np.array([[3], [12]], np.int32), u])
    assert written.tolist() == [[0.0] * 3 + [1.0] * 6 + [0.0] * 7, [0.0] * 12 + [1.0] * 4]


NOT_FITTING = (
    "does not fit the shards of its operands; run 'reshard' before 'partition', or constrain"
)
REFUSED = [
    (
        MANUAL.replace("(%p: f32[2, 8@y])", "(%p: f32[2, 8@-])")
        .replace("%q = exp(%p) : f32[2, 8@y]", "%q = exp(%p) : f32[2, 8@-]")
        .replace(" : f32[2, 8@y]", " : f32[2, 8@-]"),
        f"manual_computation {NOT_FITTING} %c",
    ),
    (
        MANUAL.replace(": f32[8@x, 8@y] {", ": f32[8@x, 8@-] {").replace(
            "-> (f32[8@x, 8@y])", "-> (f32[8@x, 8@-])"
        ),
        f"manual_computation {NOT_FITTING} %c",
    ),
    (
        """\
func @f(
  %a: f32[8@x],
) -> (f32[8@-]) {
  %b = optimization_barrier(%a) : f32[8@-]
  return %b
}
""",
        f"optimization_barrier {NOT_FITTING} %b",
    ),
    (
        """\
func @f(
  %a: f32[8@x],
) -> (f32[8@-]) {
  %b = scan(%a, carries=1, length=3) : f32[8@-] {
    (%c: f32[8@-]) =>
    yield %c
  }
  return %b
}
""",
        f"scan {NOT_FITTING} %b",
    ),
    *(
        (
            f"""\
func @f(
  %a: f32[8@x],
) -> (f32[8@x]) {{
  %b = {operation} : f32[8@x]
  return %b
}}
""",
            f"{operation.partition('(')[0]} has no factor rule and cannot be sharded; run "
            "'reshard' before 'partition', or constrain %b",
        )
        for operation in (
            'opaque(operation="x.y", head="x.y", attributes="", types="")',
            'custom-partitioning(%a, function="f", partition="p", factor_rule="")',
        )
    ),
    (
        """\
func @f(
  %a: f32[8@x],
) -> (f32[8@-]) {
  %b = neg(%a) : f32[8@x]
  return %b
}
""",
        "@f states the sharding [-] for a result, and returns %b with the sharding [x]; run "
        "'reshard' before 'partition'",
    ),
    (
        """\
func @f(
  %a: f32[8@x],
) -> (f32[8@x]) {
  %b = opaque(%a, operation="x.y", head="x.y %", attributes="", types="") : f32[8@x]
  return %b
}
""",
        "opaque has no factor rule and cannot be sharded; run 'reshard' before 'partition', or "
        "constrain %b",
    ),
    (
        """\
func @f() -> (f32[4]) {
  %a = constant(value=1.0) : f32[4@-] unreduced(x)
  %b = reshard(%a) : f32[4@-]
  return %b
}
""",
        "constant leaves a pending reduction that no `reshard` completes; run 'reshard' before "
        "'partition', or constrain %a",
    ),
    (
        """\
func @f() -> (f32[4]) {
  %a = iota(dim=0) : f32[4@-] unreduced(x)
  %b = reshard(%a) : f32[4@-]
  return %b
}
""",
        "iota leaves a pending reduction that no `reshard` completes; run 'reshard' before "
        "'partition', or constrain %a",
    ),
    *(
        (
            f"""\
func @f(
  %a: f32[8@x],
  %s: f32[],
) -> (f32[]) {{
  %b = sum(%a, dims=[0]) : f32[] unreduced(x)
  %c = {operation}
  %d = reshard(%c) : f32[]
  return %d
}}
""",
            f"{operation.partition('(')[0]} uses %b, which is unreduced; run 'reshard' before "
            "'partition', or constrain %c",
        )
        for operation in (
            "exp(%b) : f32[]",
            "neg(%b) : f32[]",
            "neg(%b) : f32[] unreduced[max](x)",
            "add(%b, %s) : f32[] unreduced(x)",
            "add(%s, %b) : f32[] unreduced(x)",
            "mul(%b, %b) : f32[] unreduced(x)",
        )
    ),
    (
        """\
func @f(
  %a: f32[4@x, 2@-],
) -> (f32[8]) {
  %b = reshape(%a) : f32[8@y]
  %c = reshard(%b) : f32[8@-]
  return %c
}
""",
        "reshape cannot run with %b sharded as it is; run 'reshard' before 'partition', or "
        "constrain %b",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_without_reshard_other_programs_are_refused(text: str, message: str) -> None:
    module = parse(MESH + text)
    verify(module)
    with pytest.raises(PartitionError) as caught:
        Partition()(module)
    assert str(caught.value) == message


def test_operations_on_replicated_values_need_no_rule() -> None:
    """The shardings of a function without shards may be stated or not."""
    module = Partition()(parse(MESH + """\
func @f(
  %a: f32[8@-],
  %b: f32[8],
) -> (f32[8@-], f32[8]) {
  %c = opaque(%a, operation="x.y", head="x.y %", attributes="", types="") : f32[8@-]
  %d = opaque(%b, operation="x.y", head="x.y %", attributes="", types="") : f32[8]
  return %c, %d
}
"""))  # fmt: skip
    verify(module)
    assert [op.name for op in module.main.body.ops] == ["opaque", "opaque"]


def test_a_pipeline_of_replicated_values_stays_as_it_is() -> None:
    text = """\
func @f(
  %v: f32[4, 8],
  %x: f32[16, 4],
) -> (f32[]) {
  %loss = pipeline(%v, %x, microbatches=2, schedule="1f1b", axis="y", batched=[1], wrt=[]) : f32[] {
    (%v.1: f32[4, 8], %x.1: f32[8, 4]) =>
    %a = dot(%x.1, %v.1, dims="bi,ih->bh") : f32[8, 8]
    %e = sum(%a, dims=[0, 1]) : f32[]
    yield %e
  }
  return %loss
}
"""
    module = parse(MESH + text)
    assert body(Partition()(module)) == body(module)


def test_complex_numbers_begin_to_wait_for_a_sum() -> None:
    module = run_partition("""\
func @f(
  %a: c64[8@-],
) -> (c64[8@-]) {
  %b = log(%a) : c64[8@-]
  %c = reshard(%b) : c64[8@-] unreduced(x)
  %d = reshard(%c) : c64[8@-]
  return %d
}
""")
    assert kinds(module) == ["axis-index", "all-reduce"]


@pytest.mark.parametrize(
    ("number", "reduction", "fits"),
    [
        ("0.0", "", True),
        ("1.0", "", False),
        ("1.0", "[mul]", True),
        ("0.0", "[mul]", False),
        ("2.0", "[max]", True),
    ],
)
def test_a_constant_may_wait_if_its_copies_reduce_to_one(
    number: str, reduction: str, fits: bool
) -> None:
    module = parse(MESH + f"""\
func @f() -> (f32[4]) {{
  %a = constant(value={number}) : f32[4@-] unreduced{reduction}(x)
  %b = reshard(%a) : f32[4@-]
  return %b
}}
""")  # fmt: skip
    if fits:
        (result,) = run(Partition()(module), [])
        assert np.all(np.asarray(result) == float(number))
    else:
        with pytest.raises(PartitionError, match="leaves a pending reduction"):
            Partition()(module)
