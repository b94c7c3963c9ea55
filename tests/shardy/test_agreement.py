"""Our propagation agrees with the real Shardy on every axis. Requires the extra `jax`."""

import pytest

pytest.importorskip("jaxlib")

from shardir.ir.module import Module
from shardir.passes import Propagate
from shardir.stablehlo.reader import read
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.shardy.compare import agrees, disagreements, read_calls
from tests.shardy.fuzz import drawn
from tests.shardy.oracle import NoAnswer, number_ops, ours, run, whole_is_nothing
from tests.shardy.random_programs.calls import text_of
from tests.shardy.random_programs.program_builder import Options
from tests.shardy.random_programs.programs import program

PROGRAMS = {
    "flat": Options(size=15, regions=False, constraints=False, constants=False),
    "constants": Options(size=15, regions=False, constraints=False),
    "constraints": Options(size=15, regions=False),
    "loops": Options(size=15),
    "meshes": Options(size=15, meshes=3),
    "single devices": Options(size=15, meshes=2, maximal=True),
    "calls": Options(size=10, calls=True),
    "large": Options(size=40),
}
COUNT = 25
MANY = 5_000
"""Programs that are compared with `--long`; their options are drawn too."""


def programs(kind: str) -> list[Module]:
    return [program(f"{kind} {seed}", PROGRAMS[kind]) for seed in range(COUNT)]


@pytest.mark.parametrize("kind", PROGRAMS)
def test_shardings_agree(kind: str) -> None:
    """Compare each level and the final shardings, except where Shardy's own verifier rejects its
    result.
    """
    answered = 0
    for seed, module in enumerate(programs(kind)):
        found = agrees(module)
        assert not found, f"{kind} {seed}\n{module}\n{found}"
        answered += found is not None
    assert answered >= COUNT - 3


@pytest.mark.parametrize("level", ["basic", "user-priority"])
def test_conservative_propagation_agrees(level: str) -> None:
    """Parts of axes, and axes along resized dimensions, do not propagate."""
    changed = 0
    for seed, module in enumerate(programs("flat")):
        found = disagreements(module, level, conservative=True)
        assert not found, f"{seed}\n{module}\n{found}"
        changed += do_modes_differ(module, level)
    assert changed > COUNT // 3


@pytest.mark.parametrize("seed", [9, 10])
@pytest.mark.parametrize("level", ["basic", "aggressive"])
def test_conservative_propagation_agrees_for_barriers_and_convolutions(
    level: str, seed: int
) -> None:
    """Program 9 has a barrier between parts of an axis, and program 10 a convolution whose
    window would decide which of two conflicting axes propagates.
    """
    module = program(f"loops {seed}", PROGRAMS["loops"])
    assert disagreements(module, level, conservative=True) == []


def do_modes_differ(module: Module, level: str) -> bool:
    """Return whether conservative propagation has another result."""
    both = [
        Propagate(level=level, keep_open=True, conservative=conservative)(module)
        for conservative in (False, True)
    ]
    return str(both[0]) != str(both[1])


@pytest.mark.parametrize("local", ["f32[6, 24]", "f32[6@-, 24@-]"])
@pytest.mark.parametrize("cut", ["[], []", "[], [one]", "[one], []", "[one], [two]"])
@pytest.mark.parametrize("axes", ["one, two", "one, two, x"])
def test_a_constraint_and_a_manual_computation_of_one_value(
    axes: str, cut: str, local: str
) -> None:
    """Manual axes of size 1 are replicated axes of what a manual computation states."""
    for stated in ("24@-", "24@one", "24@two", "24@x", "24@-] replicated(x"):
        closing = ")" if "(" in stated else "]"
        module = parse(f"""\
mesh @m = [one=1, two=1, x=2]

func @main(%x: f32[6, 24]) -> (f32[6, 24]) {{
  %y = neg(%x) : f32[6, 24]
  %c = sharding_constraint(%y) : f32[6@-, {stated}{closing}
  %d = manual_computation(%y, axes=[{axes}], in_axes=[[{cut}]], out_axes=[[[], []]]) : f32[6, 24] {{
    (%l: {local}) =>
    %n = neg(%l) : f32[6, 24]
    yield %n
  }}
  return %d
}}
""")
        assert agrees(module) == [], str(module)


def test_a_sharding_group_with_an_operand_of_a_manual_computation() -> None:
    """The sharding that a manual computation states is replicated along its axis of size 1, so that
    it conflicts with that of a constraint in the same group.
    """
    module = parse("""\
mesh @m = [x=4, one=1]

func @main(%p: f32[8, 4@x], %z: f32[8, 4]) -> (f32[8, 4], f32[8, 4]) {
  %a = neg(%p) : f32[8, 4]
  %c = sharding_constraint(%a) : f32[8@-, 4@-]
  sharding_group(%c, group=0)
  sharding_group(%z, group=0)
  %m = manual_computation(%z, axes=[one], in_axes=[[[], []]], out_axes=[[[one], []]]) : f32[8, 4] {
    (%l: f32[8@-, 4@-]) =>
    %n = neg(%l) : f32[8, 4]
    yield %n
  }
  %r = add(%c, %p) : f32[8, 4]
  return %r, %m
}
""")
    assert agrees(module) == []


def test_each_use_of_an_operand_wakes_the_edge_of_this_use() -> None:
    """All initial values of the loop are one value; the order of its edges decides whether the
    group or an edge shards the second result.
    """
    module = parse("""\
mesh @m = [x=8]

func @main(%0: f32[1, 6]) -> (f32[6, 1], f32[1, 6]) {
  %14, %15, %16 = while(%0, %0, %0) : f32[1, 6], f32[1, 6], f32[1, 6] {
    (%t: f32[1, 6], %t.1: f32[1, 6], %t.2: f32[1, 6]) =>
    %1 = sum(%t, dims=[0, 1]) : f32[]
    %2 = constant(value=9.0) : f32[]
    %3 = lt(%1, %2) : bool[]
    yield %3
  } {
    (%c: f32[1, 6], %c.1: f32[1, 6], %c.2: f32[1, 6]) =>
    %4 = transpose(%c.2, perm=[0, 1]) : f32[1, 6]
    sharding_group(%4, group=0)
    sharding_group(%c.1, group=0)
    sharding_group(%c, group=0)
    sharding_group(%c.2, group=0)
    yield %c.1, %c, %4
  }
  %21 = transpose(%15, perm=[1, 0]) : f32[6, 1]
  %27 = neg(%0) : f32[1@-, 6@x:(1)2]
  return %21, %27
}
""")
    assert disagreements(module, "basic") == []


@pytest.mark.parametrize(("first", "second"), [("c", "d"), ("d", "c"), ("c", "c"), ("d", "d")])
def test_a_group_shards_only_the_copies_of_a_call_of_which_its_member_is_used(
    first: str, second: str
) -> None:
    module = parse(f"""\
mesh @m = [x=2]

func @main(%a: f32[4@x]) -> (f32[4], f32[4]) {{
  %k = constant(value=1.0) : f32[4]
  %c, %d = call(%k, callee="f") : f32[4], f32[4] {{
    (%p: f32[4]) =>
    yield %p, %p
  }}
  sharding_group(%c, group=0)
  sharding_group(%a, group=0)
  %y = sort(%{first}, dim=0) : f32[4]
  %z = sort(%{second}, dim=0) : f32[4]
  return %y, %z
}}
""")
    assert agrees(module) == []


def test_a_step_removes_priorities_also_if_it_adds_no_axes() -> None:
    """The axis `y` would shard the second factor of the first dimension of `%a`, of which the first
    factor is unsharded.
    """
    module = parse("""\
mesh @m = [y=4]

func @main(%a: f32[8@? p3, 4@-]) -> (f32[4, 4, 2]) {
  %r = reshape(%a) : f32[4, 4, 2]
  %c = sharding_constraint(%r) : f32[4@-, 4@y, 2@-]
  return %c
}
""")
    assert agrees(module) == []


@pytest.mark.parametrize(
    ("before", "inner", "outer", "after"),
    [
        ("", 0, 1, ""),
        ("", 1, 0, ""),
        ("sharding_group(%v, group=0)", 1, 0, ""),
        ("sharding_group(%v, group=1)", 0, 1, ""),
        ("sharding_group(%v, group=0)", 1, 0, "sharding_group(%w, group=2)"),
        ("sharding_group(%v, group=3)", 1, 3, "sharding_group(%w, group=2)"),
    ],
)
def test_groups_of_one_edge_apply_in_the_order_in_which_they_are_stated(
    before: str, inner: int, outer: int, after: str
) -> None:
    """The carried value and the result of the loop share an edge, and their groups contradict each
    other. Groups 0 and 2, or 3 and 2, have the common member `%w`, which states 2 first.
    """
    module = parse(f"""\
mesh @m = [x=2, y=2]

func @main(%v: f32[8], %q: f32[8@x], %u: f32[8@y], %w: f32[8], %a: f32[8]) \
-> (f32[8], f32[8], f32[8], f32[8], f32[8]) {{
  {before}
  %r = while(%a) : f32[8] {{
    (%t: f32[8]) =>
    %s = sum(%t, dims=[0]) : f32[]
    %k = constant(value=9.0) : f32[]
    %l = lt(%s, %k) : bool[]
    yield %l
  }} {{
    (%c: f32[8]) =>
    sharding_group(%c, group={inner})
    sharding_group(%u, group={inner})
    %d = sort(%c, dim=0) : f32[8]
    yield %d
  }}
  sharding_group(%r, group={outer})
  sharding_group(%q, group={outer})
  {after}
  {f"sharding_group(%w, group={outer})" if after else ""}
  return %r, %v, %q, %u, %w
}}
""")
    assert agrees(module) == []


def test_a_value_that_is_several_operands_of_a_manual_computation_gets_one_constraint() -> None:
    module = parse("""\
mesh @m = [x=2]

func @main(%i: i32[], %a: f32[8], %b: f32[8]) -> (f32[8], f32[8]) {
  %c = case(%i) : f32[8] {
    yield %a
  } {
    yield %b
  }
  %m = manual_computation(%c, %c, axes=[x], in_axes=[[[x]], [[x]]], out_axes=[[[x]]]) : f32[8] {
    (%l: f32[4@-], %k: f32[4@-]) =>
    %n = add(%l, %k) : f32[4]
    yield %n
  }
  %s = sort(%c, dim=0) : f32[8]
  return %m, %s
}
""")
    assert agrees(module) == []


def test_a_part_that_shardy_replaces_by_its_size_is_no_disagreement() -> None:
    """Shardy replaces x:(1)4 by x:(1)6, which no reshape of an axis of size 12 contains together;
    only our result then has the smaller part.
    """
    module = parse("""\
mesh @m = [x=12, y=5]

func @main(%p: f32[16@(x:(1)6, y)], %q: f32[2]) -> (f32[2]) {
  %0, %1 = while(%q, %p) : f32[2], f32[16@x:(1)4?] {
    (%t: f32[2], %t.1: f32[16]) =>
    %2 = sum(%t, dims=[0]) : f32[]
    %3 = constant(value=9.0) : f32[]
    %4 = lt(%2, %3) : bool[]
    yield %4
  } {
    (%c: f32[2], %c.1: f32[16]) =>
    yield %c, %p
  }
  return %0
}
""")
    with pytest.raises(NoAnswer, match="by their size"):
        disagreements(module, "basic")


def test_many_programs_agree(request: pytest.FixtureRequest) -> None:
    """Compare each level and the final shardings, except where Shardy's own verifier rejects its
    result.
    """
    if not request.config.getoption("--long"):
        pytest.skip("5,000 programs take an hour; --long asks for them")
    assert [seed for seed in range(MANY) if agrees(drawn(seed))] == []


@pytest.mark.parametrize("kind", ["constraints", "loops", "calls"])
def test_shardings_of_parameters_and_results_agree_with_the_full_pipeline(kind: str) -> None:
    """The full pipeline shards more operations than propagation, so that operations are not
    compared.
    """
    rejected = 0
    for module in map(number_ops, programs(kind)):
        try:
            want = whole_is_nothing(run(module, "sdy-propagation-pipeline"))
        except NoAnswer:
            rejected += 1
            continue
        got = whole_is_nothing(ours(Propagate()(read_calls(module))))
        assert (got.params, got.results) == (want.params, want.results), str(module)
    assert rejected < COUNT // 10


def test_some_programs_depend_on_the_order_of_the_work_list() -> None:
    """The programs are difficult enough only if another order changes some decisions."""
    modules = programs("loops")
    different = sum(
        str(Propagate(level="basic")(m)) != str(Propagate(level="basic", order="fifo")(m))
        for m in modules
    )
    assert different > COUNT // 20


def test_random_programs_call_no_function_that_states_manual_axes_of_the_caller() -> None:
    # In this program, a manual computation would call such a function, which Shardy refuses, too.
    verify(read(text_of(drawn(54_100_170))))
