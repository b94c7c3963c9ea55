"""The causes of XLA's collectives by the primitives that XLA states."""

import pytest

from shardir.hlo.parser import parse_hlo
from shardir.passes.explain.xla import xla_causes
from shardir.passes.explain.xla.xla_causes import XlaCause, XlaCauseKind, find_xla_causes

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
        (
            "jit(f)/pure_callback",
            "pure_callback calls the function once, with all elements of its operands",
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


SUM = (
    "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
    '  ROOT s = f32[] add(a, b), metadata={op_name="add"}\n}\n'
)
SLICING = (
    "slicing {\n  x = f32[8]{0} parameter(0)\n  at = u32[] parameter(1)\n"
    "  ROOT y = f32[4]{0} dynamic-slice(x, at), dynamic_slice_sizes={4}\n}\n"
)
COMPUTING = (
    "computing {\n  x = f32[8]{0} parameter(0)\n  at = u32[] parameter(1)\n"
    '  t = f32[8]{0} tanh(x), metadata={op_name="jit(f)/tanh"}\n'
    "  ROOT y = f32[4]{0} dynamic-slice(t, at), dynamic_slice_sizes={4}\n}\n"
)
INDEX = (
    "  id = u32[] partition-id()\n  n = u32[] constant(4)\n  at = u32[] multiply(id, n)\n"
    "  k = u32[] parameter(1)\n"
)


def gathered(*lines: str, op_name: str = "", computations: str = "") -> XlaCause:
    """Return the cause of an all-gather %c in a computation with further lines, in which %id is the
    number of the partition, %at the start of its part, and %k another number."""
    body = "\n".join(f"  {line}" for line in lines)
    module = parse_hlo(
        f"HloModule m, num_partitions=2\n\n{computations}\nENTRY main {{\n"
        f"  p = f32[4]{{0}} parameter(0)\n{INDEX}"
        f"  c = f32[8]{{0}} all-gather(p), dimensions={{0}}, {GROUPS}, "
        f'metadata={{op_name="{op_name}"}}\n{body}\n}}\n'
    )
    return find_xla_causes(module)["c"]


PART = "dynamic_slice_sizes={4}"
SLICED = f"ROOT part = f32[4]{{0}} dynamic-slice(c, at), {PART}"
KINDS = XlaCauseKind


@pytest.mark.parametrize(
    ("collective", "op_name", "kind", "text"),
    [
        (
            "f32[8]{0} all-reduce(p)", "jit(f)/psum", KINDS.REQUEST,
            "the program requests it: jax.lax.psum in shard_map",
        ),
        (
            "f32[8]{0} all-reduce(p)", "jit(f)/scatter", KINDS.LOOKUP,
            "scatter indexes a sharded dimension: each device finds the elements of its part, and "
            "the sum combines them",
        ),
        (
            "f32[8]{0} all-reduce(p)", "jit(f)/transpose(jvp(g))/dot_general", KINDS.PARTIAL_SUMS,
            "each device has the derivative with respect to its part of the data; the sum combines "
            "them",
        ),
        (
            "f32[8]{0} all-reduce(p)", "jit(f)/jit(main)", KINDS.PARTIAL_SUMS,
            "this line sums over a sharded dimension: each device has a partial result",
        ),
        (
            "f32[8]{0} all-to-all(p), dimensions={0}", "jit(f)/reshape", KINDS.EXCHANGE,
            "the sharding moves to another dimension at reshape",
        ),
        (
            "f32[8]{0} all-gather(p), dimensions={0}", "jit(f)/sharding_constraint",
            KINDS.ANNOTATION, "an annotation requests another sharding (sharding_constraint)",
        ),
        (
            "f32[8]{0} all-gather(p), dimensions={0}", "", KINDS.OPERAND,
            "this line uses all elements of a dimension that its operand has sharded",
        ),
    ],
)  # fmt: skip
def test_the_cause_of_each_kind_of_collective(
    collective: str, op_name: str, kind: XlaCauseKind, text: str
) -> None:
    cause = cause_of(collective, op_name)
    assert (cause.kind, cause.text) == (kind, text)


def test_elements_that_cross_the_boundaries_of_shards() -> None:
    module = parse_hlo(
        "HloModule m, num_partitions=2\n\nENTRY main {\n  p = f32[8]{0} parameter(0)\n"
        "  ROOT c = f32[8]{0} collective-permute(p), channel_id=1, "
        'source_target_pairs={{0,1},{1,0}}, metadata={op_name="jit(f)/roll"}\n}\n'
    )
    cause = find_xla_causes(module)["c"]
    assert (cause.kind, cause.text) == (
        KINDS.SHIFT, "roll moves elements of a sharded dimension to other shards"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op_name", "hint"),
    [
        ("jit(f)/jit(_uniform)/threefry2x32", "random_bits"),
        ("jit(f)/jit(argmax)/reduce", "argmax"),
        ("jit(f)/reduce", None),
        ("jit(f)/jit(argmax)/gather", "gather"),
        ("jit(f)/io_callback", "io_callback"),
    ],
)
def test_hints_of_operations(op_name: str, hint: str | None) -> None:
    expected = "" if hint is None else xla_causes._HINTS[hint]
    assert cause_of("f32[8]{0} all-reduce(p)", op_name).hint == expected


def test_a_result_that_is_used_nowhere_is_replicated() -> None:
    """XLA states no operation for such a result."""
    copy = "ROOT r = f32[8]{0} copy(c)"
    assert gathered(copy).kind is KINDS.RESULT
    assert gathered(copy, op_name="jit(f)/add").kind is KINDS.OPERAND


@pytest.mark.parametrize("op_name", ["", "jit(f)/add"])
def test_a_part_of_a_gathered_array_is_a_rematerialization(op_name: str) -> None:
    """Also if the part is used further."""
    further = SLICED.replace("ROOT ", ""), "ROOT t = f32[4]{0} tanh(part)"
    moved = "v = f32[8]{0} copy(c)", SLICED.replace("c, at", "v, at")
    fused = ("ROOT part = f32[4]{0} fusion(c, at), kind=kLoop, calls=slicing",)
    for lines in ((SLICED,), further, moved, fused):
        found = gathered(*lines, op_name=op_name, computations=SLICING)
        assert found.kind is KINDS.REMATERIALIZATION


def test_windows_of_a_gathered_array_are_no_rematerialization() -> None:
    assert gathered(SLICED, op_name="jit(f)/reduce_window_sum").kind is KINDS.OPERAND


@pytest.mark.parametrize(
    ("lines", "replicated"),
    [
        (('t = f32[8]{0} sine(c), metadata={op_name="jit(f)/sin"}',), "sin"),
        (("t = f32[8]{0} sort(c), dimensions={0}",), "sort"),
        (("ROOT part = f32[4]{0} fusion(c, at), kind=kLoop, calls=computing",), "tanh"),
        (("ROOT part = f32[4]{0} fusion(c, at), kind=kLoop, calls=unnamed",), "add"),
    ],
)
def test_a_part_of_a_computed_array_is_a_replicated_operation(
    lines: tuple[str, ...], replicated: str
) -> None:
    """The operation is the first one between the collective and the part, or that of the collective
    if XLA does not state it."""
    if len(lines) == 1 and "part" not in lines[0]:
        lines = (*lines, SLICED.replace("c, at", "t, at"))
    unnamed = COMPUTING.replace("computing", "unnamed").replace('op_name="jit(f)/tanh"', "")
    found = gathered(*lines, op_name="jit(f)/add", computations=COMPUTING + unnamed)
    assert (found.kind, found.operation) == (KINDS.REPLICATION, replicated)


@pytest.mark.parametrize(
    "lines",
    [
        ("ROOT part = f32[4]{0} dynamic-slice(c, k), " + PART,),
        ("j = u32[] convert(k)", "ROOT part = f32[4]{0} dynamic-slice(c, j), " + PART),
        ("j = u32[] popcnt(id)", "ROOT part = f32[4]{0} dynamic-slice(c, j), " + PART),
        ("ROOT part = f32[4]{0} dynamic-slice(p, c, at), " + PART,),
        (
            "w = u32[8]{0} fusion(id), kind=kLoop, calls=wide",
            "ROOT part = f32[4]{0} fusion(c, k, w), kind=kLoop, calls=slicing",
        ),
        (
            "w = (u32[], u32[]) fusion(id), kind=kLoop, calls=wide",
            "ROOT part = f32[4]{0} dynamic-slice(c, k), " + PART,
        ),
    ],
    ids=["a parameter", "of a parameter", "no index", "as an index", "an array", "a tuple"],
)
def test_other_slices_are_no_parts_of_devices(lines: tuple[str, ...]) -> None:
    """Their start does not depend on the number of the partition by arithmetic on indices."""
    wide = "wide {\n  i = u32[] parameter(0)\n  ROOT b = u32[8]{0} broadcast(i), dimensions={}\n}\n"
    found = gathered(*lines, op_name="jit(f)/add", computations=SLICING + wide)
    assert found.kind is KINDS.OPERAND


@pytest.mark.parametrize(
    "lines",
    [
        ("w = (f32[8]{0}) tuple(c)", "l = (f32[8]{0}) while(w), condition=sum, body=sum", SLICED),
        (
            "j = u32[] call(c, id), to_apply=counting",
            f"ROOT part = f32[4]{{0}} dynamic-slice(c, j), {PART}",
        ),
    ],
    ids=["loop", "index"],
)
def test_loops_and_indices_compute_no_part(lines: tuple[str, ...]) -> None:
    counting = (
        "counting {\n  x = f32[8]{0} parameter(0)\n  i = u32[] parameter(1)\n"
        '  r = u32[] reduce(x), dimensions={0}, metadata={op_name="jit(f)/reduce_sum"}\n'
        "  ROOT j = u32[] add(r, i)\n}\n"
    )
    found = gathered(*lines, op_name="jit(f)/add", computations=SUM + counting)
    assert found.kind is KINDS.REMATERIALIZATION


def test_the_number_of_followed_users_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "v = f32[8]{0} copy(c)", SLICED.replace("c, at", "v, at")
    assert gathered(*lines, op_name="jit(f)/add").kind is KINDS.REMATERIALIZATION
    monkeypatch.setattr(xla_causes, "_MAX_FOLLOWED_USERS", 2)
    assert gathered(*lines, op_name="jit(f)/add").kind is KINDS.OPERAND


BACKWARD = 'metadata={op_name="jit(f)/transpose(jvp())/dot_general"}'
PRODUCT = 'metadata={op_name="jit(f)/transpose(jvp())/mul"}'
INTERMEDIATE = (
    "dot_general sums over a sharded dimension in the backward pass: each device has a partial "
    "derivative of an intermediate value, which other derivatives need"
)
OF_ARGUMENT = (
    "each device has the derivative with respect to its part of the data; the sum combines them"
)
DOT = "f32[8,8]{1,0} dot(a, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}"


@pytest.mark.parametrize(
    ("users", "text"),
    [
        # The derivative of a layer's input, from which the derivatives of the layer before follow.
        (f"  a = f32[8,8]{{1,0}} tanh(c), {PRODUCT}\n  ROOT r = {DOT}, {BACKWARD}\n",
         INTERMEDIATE),
        ('  a = f32[8,8]{1,0} copy(c), metadata={op_name="jit(f)/while"}\n'
         f"  ROOT r = {DOT}, {BACKWARD}\n", INTERMEDIATE),
        (f"  ROOT r = f32[8,8]{{1,0}} fusion(c, p), kind=kLoop, calls=fused, {BACKWARD}\n",
         INTERMEDIATE),
        (f"  a = f32[8,8]{{1,0}} tanh(c)\n  ROOT r = {DOT}, {BACKWARD}\n", INTERMEDIATE),
        # An elementwise operation of the backward pass, and a product of the program itself.
        (f"  ROOT a = f32[8,8]{{1,0}} tanh(c), {PRODUCT}\n", OF_ARGUMENT),
        (f"  ROOT r = {DOT.replace('(a', '(c')}, "
         'metadata={op_name="jit(f)/dot_general"}\n', OF_ARGUMENT),
        # Another step uses the weight after its update.
        (f'  a = f32[8,8]{{1,0}} subtract(p, c), metadata={{op_name="jit(f)/sub"}}\n'
         f"  ROOT r = {DOT}, {BACKWARD}\n", OF_ARGUMENT),
        # The derivative of a weight, which is a result, or which an optimizer uses.
        (f"  ROOT r = f32[8,8]{{1,0}} transpose(c), dimensions={{1,0}}, {BACKWARD}\n", OF_ARGUMENT),
        (f"  ROOT r = f32[8,8]{{1,0}} fusion(c, p), kind=kLoop, calls=step, {BACKWARD}\n",
         OF_ARGUMENT),
        (f"  a = f32[8,8]{{1,0}} add(c, p)\n  ROOT r = {DOT}\n", OF_ARGUMENT),
    ],
)  # fmt: skip
def test_derivatives_of_intermediate_values_are_not_those_of_arguments(
    users: str, text: str
) -> None:
    cause = cause_in_backward_pass(users)
    assert (cause.kind, cause.text) == (XlaCauseKind.PARTIAL_SUMS, text)


def cause_in_backward_pass(
    users: str, collective: str = f"all-reduce(p), {GROUPS}", metadata: str = BACKWARD
) -> XlaCause:
    """Return the cause of a collective %c with some users."""
    module = parse_hlo(f"""HloModule m, num_partitions=2

fused {{
  x = f32[8,8]{{1,0}} parameter(0)
  y = f32[8,8]{{1,0}} parameter(1)
  ROOT z = f32[8,8]{{1,0}} dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}, {BACKWARD}
}}

step {{
  x = f32[8,8]{{1,0}} parameter(0)
  y = f32[8,8]{{1,0}} parameter(1)
  ROOT z = f32[8,8]{{1,0}} subtract(y, x), metadata={{op_name="jit(f)/sub"}}
}}

ENTRY main {{
  p = f32[8,8]{{1,0}} parameter(0)
  c = f32[8,8]{{1,0}} {collective}, {metadata}
{users}}}
""")  # noqa: E501
    return find_xla_causes(module)["c"]


FORWARD = 'metadata={op_name="jit(f)/jvp()/dot_general"}'
USED_BY_DERIVATIVE = f"  ROOT r = {DOT.replace('dot(a', 'dot(c')}, {BACKWARD}\n"


def test_other_collectives_of_the_backward_pass_are_no_sums() -> None:
    shift = "collective-permute(p), channel_id=1, source_target_pairs={{0,1},{1,0}}"
    assert cause_in_backward_pass(USED_BY_DERIVATIVE, shift).kind is XlaCauseKind.SHIFT
    assert cause_in_backward_pass(USED_BY_DERIVATIVE).text == INTERMEDIATE


def test_a_sum_of_the_forward_pass_that_a_derivative_uses() -> None:
    text = cause_in_backward_pass(USED_BY_DERIVATIVE, metadata=FORWARD).text
    assert text == "dot_general sums over a sharded dimension: each device has a partial result"


LOOP = "  w = (f32[8,8]{1,0}) tuple(c)\n  l = f32[8,8]{1,0} while(w), condition=step, body=step\n"


@pytest.mark.parametrize(
    "users",
    [
        USED_BY_DERIVATIVE.replace(BACKWARD, FORWARD),
        f"  ROOT r = f32[8,8]{{1,0}} tanh(c), {BACKWARD.replace('dot_general', 'tanh')}\n",
    ],
    ids=["forward pass", "no contraction"],
)
def test_other_users_are_no_contractions_of_the_backward_pass(users: str) -> None:
    assert cause_in_backward_pass(users).text == OF_ARGUMENT


def test_a_derivative_is_followed_through_copies_and_loops() -> None:
    copied = "  a = f32[8,8]{1,0} copy(c)\n" + USED_BY_DERIVATIVE.replace("dot(c", "dot(a")
    carried = LOOP + USED_BY_DERIVATIVE.replace("dot(c", "dot(l")
    assert {cause_in_backward_pass(users).text for users in (copied, carried)} == {INTERMEDIATE}


@pytest.mark.parametrize(
    ("collective", "op_name", "text"),
    [
        (
            "all-reduce(p)",
            "jvp()/dot_general",
            "dot_general sums over a sharded dimension: each device has a partial result",
        ),
        (
            "all-to-all(p), dimensions={0}",
            "transpose(jvp())/reshape",
            "the sharding moves to another dimension at reshape",
        ),
    ],
)
def test_other_values_that_derivatives_use(collective: str, op_name: str, text: str) -> None:
    """Results of the forward pass, and collectives that are no sums."""
    module = parse_hlo(
        "HloModule m, num_partitions=2\n\nENTRY main {\n  p = f32[8,8]{1,0} parameter(0)\n"
        f"  a = f32[8,8]{{1,0}} {collective}, {GROUPS}, "
        f'metadata={{op_name="jit(f)/{op_name}"}}\n  ROOT r = {DOT}, {BACKWARD}\n}}\n'
    )
    assert find_xla_causes(module)["a"].text == text


def test_unknown_groups_are_those_of_all_devices() -> None:
    tiles = "sharding={devices=[2,2]<=[4] last_tile_dim_replicate}"
    module = parse_hlo(f"""HloModule m, num_partitions=4

ENTRY main {{
  p = f32[4]{{0}} parameter(0)
  q = f32[8]{{0}} parameter(1), {tiles}
{INDEX.replace("parameter(1)", "parameter(2)")}
  c = f32[8]{{0}} all-gather(p), dimensions={{0}}, replica_groups=mesh, metadata={{op_name="jit(f)/add"}}
  t = f32[8]{{0}} power(c, q)
  ROOT part = f32[4]{{0}} dynamic-slice(t, at), {PART}
}}
""")  # noqa: E501
    assert find_xla_causes(module)["c"].kind is KINDS.OPERAND


def in_loop(*lines: str, operands: str = "p", invariants: str = "at, p") -> XlaCause:
    """Return the cause of an all-gather %c in the body of a loop, in which %at is the start of the
    part of the device, which is computed before the loop."""
    body = "\n".join(f"  {line}" for line in lines)
    state = "(f32[4]{0}, u32[], f32[4]{0})"
    module = parse_hlo(f"""HloModule m, num_partitions=2

body {{
  s = {state} parameter(0)
  v = f32[4]{{0}} get-tuple-element(s), index=0
  at = u32[] get-tuple-element(s), index=1
  p = f32[4]{{0}} get-tuple-element(s), index=2
  c = f32[8]{{0}} all-gather(v), dimensions={{0}}, {GROUPS}, metadata={{op_name="jit(f)/add"}}
{body}
  ROOT next = {state} tuple(part, {invariants})
}}

condition {{
  s = {state} parameter(0)
  ROOT more = pred[] constant(true)
}}

ENTRY main {{
  p = f32[4]{{0}} parameter(0), sharding={{devices=[2]<=[2]}}
{INDEX}  first = {state} tuple(p, at, p)
  w = {state} while(first), condition=condition, body=body
  ROOT r = f32[4]{{0}} get-tuple-element(w), index=0
}}
""")
    return find_xla_causes(module)["c"]


SINE = 't = f32[8]{0} sine(c), metadata={op_name="jit(f)/sin"}'
NAMED_SLICE = f"part = f32[4]{{0}} dynamic-slice(t, at), {PART}"


def test_the_part_of_a_device_is_known_inside_of_a_loop() -> None:
    """XLA moves the computation of its start out of the loop."""
    cause = in_loop(SINE, NAMED_SLICE)
    assert (cause.kind, cause.operation) == (KINDS.REPLICATION, "sin")
    counted = in_loop(SINE, NAMED_SLICE, "o = u32[] constant(1)", "k = u32[] popcnt(o)",
                      f"d = f32[4]{{0}} dynamic-slice(c, k), {PART}")  # fmt: skip
    assert (counted.kind, counted.operation) == (KINDS.REPLICATION, "sin")
    assert in_loop(NAMED_SLICE.replace("(t", "(c")).kind is KINDS.REMATERIALIZATION


def test_a_part_in_a_later_iteration_is_computed_from_other_values() -> None:
    """A value that differs between devices is not computed by all of them."""
    lines = "q = f32[8]{0} concatenate(p, p), dimensions={0}", "t = f32[8]{0} power(c, q)"
    assert in_loop(*lines, NAMED_SLICE).kind is KINDS.OPERAND


def test_an_operation_that_uses_a_gathered_weight_is_partitioned() -> None:
    """The gathered operand of a product of sharded rows, whose result XLA gathers again for an
    operation that it replicates."""
    module = parse_hlo(f"""HloModule m, num_partitions=2

ENTRY main {{
  x = f32[4,8]{{1,0}} parameter(0), sharding={{devices=[2,1]<=[2]}}
  w = f32[4,8]{{1,0}} parameter(1), sharding={{devices=[2,1]<=[2]}}
  c = f32[8,8]{{1,0}} all-gather(w), dimensions={{0}}, {GROUPS}, metadata={{op_name="jit(f)/dot_general"}}
  y = f32[4,8]{{1,0}} dot(x, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, metadata={{op_name="jit(f)/dot_general"}}
  g = f32[8,8]{{1,0}} all-gather(y), dimensions={{0}}, {GROUPS}, metadata={{op_name="jit(f)/fft"}}
  h = c64[8,8]{{1,0}} fft(g), fft_type=FFT, fft_length={{8}}, metadata={{op_name="jit(f)/fft"}}
  id = u32[] partition-id()
  n = u32[] constant(4)
  at = u32[] multiply(id, n)
  o = u32[] constant(0)
  ROOT part = c64[4,8]{{1,0}} dynamic-slice(h, at, o), dynamic_slice_sizes={{4,8}}
}}
""")  # noqa: E501
    causes = find_xla_causes(module)
    assert [(causes[name].kind, causes[name].operation) for name in "cg"] == [
        (KINDS.OPERAND, "dot_general"),
        (KINDS.REPLICATION, "fft"),
    ]


def test_devices_of_one_group_compute_the_same_with_what_they_share() -> None:
    """The operand %q differs between the groups, but not between the devices of each."""

    def cause(sharding: str) -> XlaCause:
        module = parse_hlo(f"""HloModule m, num_partitions=4

ENTRY main {{
  p = f32[4]{{0}} parameter(0), sharding={{devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}}
  q = f32[8]{{0}} parameter(1), sharding={{{sharding}}}
{INDEX.replace("parameter(1)", "parameter(2)")}\
  c = f32[8]{{0}} all-gather(p), dimensions={{0}}, {GROUPS.replace("{0,1}", "{0,1},{2,3}")}, metadata={{op_name="jit(f)/add"}}
  t = f32[8]{{0}} power(c, q), metadata={{op_name="jit(f)/pow"}}
  ROOT {NAMED_SLICE}
}}
""")  # noqa: E501
        return find_xla_causes(module)["c"]

    shared = cause("devices=[2,2]<=[4] last_tile_dim_replicate")
    assert (shared.kind, shared.operation) == (KINDS.REPLICATION, "pow")
    assert cause("devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate").kind is KINDS.OPERAND


def test_a_contraction_of_the_next_iteration_uses_a_derivative() -> None:
    def text_of(update: str, metadata: str = BACKWARD) -> str:
        state = "(f32[8,8]{1,0}, f32[8,8]{1,0})"
        module = parse_hlo(f"""HloModule m, num_partitions=2

body {{
  s = {state} parameter(0)
  v = f32[8,8]{{1,0}} get-tuple-element(s), index=0
  p = f32[8,8]{{1,0}} get-tuple-element(s), index=1
  d = f32[8,8]{{1,0}} dot(v, p), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}, {metadata}
  c = f32[8,8]{{1,0}} all-reduce(d), {GROUPS}, {BACKWARD}
  u = {update}
  ROOT next = {state} tuple(u, p)
}}

condition {{
  s = {state} parameter(0)
  ROOT more = pred[] constant(true)
}}

ENTRY main {{
  p = f32[8,8]{{1,0}} parameter(0)
  first = {state} tuple(p, p)
  w = {state} while(first), condition=condition, body=body
  ROOT r = f32[8,8]{{1,0}} get-tuple-element(w), index=0
}}
""")
        return find_xla_causes(module)["c"].text

    assert text_of(f"f32[8,8]{{1,0}} tanh(c), {PRODUCT}") == INTERMEDIATE
    # Each iteration adds a derivative to those of the iterations before.
    assert text_of(f"f32[8,8]{{1,0}} add(c, v), {PRODUCT}", FORWARD) == OF_ARGUMENT
    optimizer = 'f32[8,8]{1,0} sqrt(c), metadata={op_name="jit(f)/sqrt"}'
    assert text_of(optimizer) == OF_ARGUMENT
