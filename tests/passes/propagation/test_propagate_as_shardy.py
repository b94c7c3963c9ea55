"""Corner cases in which propagation makes the decisions of OpenXLA Shardy."""

import pytest

from shardir.ir.sharding import Sharding
from shardir.passes import Propagate
from shardir.passes.simplify.inline_calls import inline_calls
from shardir.stablehlo.reader import read
from shardir.text.parser import parse
from shardir.text.printer import print_module
from shardir.verify.verifier import verify


def propagated_lines(text: str) -> list[str]:
    module = read(text) if "func.func" in text else parse(text)
    done = inline_calls(Propagate()(module))
    return [line.strip() for line in print_module(done).splitlines() if " = " in line][1:]


def test_an_axis_of_size_one_in_a_constraint_shards_nothing() -> None:
    """The constraint replicates `%h`, and its other users may be sharded over `a`."""
    assert propagated_lines("""\
mesh @m = [a=2, one=1]

func @main(
  %x: f32[8, 8],
) -> (f32[8, 8], f32[8, 8@a]) {
  %h = sin(%x) : f32[8, 8]
  %c = sharding_constraint(%h) : f32[8@-, 8@one]
  %y = tanh(%h) : f32[8, 8]
  %z = cos(%y) : f32[8, 8]
  return %c, %z
}
""") == [
        "%h = sin(%x) : f32[8@-, 8@-]",
        "%c = sharding_constraint(%h) : f32[8@-, 8@-]",
        "%y = tanh(%h) : f32[8@-, 8@a]",
        "%z = cos(%y) : f32[8@-, 8@a]",
    ]


def test_a_manual_axis_of_size_one_is_replicated_in_what_is_stated() -> None:
    """The constraint and the manual computation state different shardings, and `%h` takes none."""
    made = propagated_lines("""\
mesh @m = [a=2, one=1]

func @main(
  %x: f32[8, 8],
) -> (f32[8, 8], f32[8@a, 8], f32[8, 8]) {
  %h = sin(%x) : f32[8, 8]
  %c = sharding_constraint(%h) : f32[8@-, 8@-]
  %d = manual_computation(%h, axes=[one], in_axes=[[[], []]], out_axes=[[[], []]]) : f32[8, 8] {
    (%l: f32[8@-, 8@-]) =>
    %n = neg(%l) : f32[8, 8]
    yield %n
  }
  %y = cos(%h) : f32[8, 8]
  return %c, %y, %d
}
""")
    assert made[0] == "%h = sin(%x) : f32[8@a, 8@-]"


@pytest.mark.parametrize(
    "copied",
    ["propagation_barrier(%i, direction=none)", "neg(%i)", "bitcast(%i)"],
)
def test_elementwise_results_of_constants_are_copied(copied: str) -> None:
    name = copied.partition("(")[0]
    made = propagated_lines(f"""\
mesh @m = [a=2]

func @main(
  %x: f32[8@a, 8@-],
) -> (f32[8, 8], f32[8@-, 8@a]) {{
  %i = iota(dim=0) : f32[8, 8]
  %b = {copied} : f32[8, 8]
  %y = add(%x, %b) : f32[8, 8]
  %z = sin(%b) : f32[8, 8]
  return %y, %z
}}
""")
    assert [line for line in made if f" {name}(" in line] == [
        f"%b = {copied} : f32[8@a, 8@-]",
        f"%b.1 = {copied.replace('%i', '%i.1')} : f32[8@-, 8@a]",
    ]


@pytest.mark.parametrize("target", ["MoveToHost", "MoveToDevice"])
def test_a_copy_to_another_memory_comes_before_a_sort(target: str) -> None:
    """The copy costs nothing, so that the sharding of the result reaches `%h` in the first
    round.
    """
    made = propagated_lines(f"""\
sdy.mesh @m = <["a"=2, "b"=4]>
func.func @main(%x: tensor<8x8xf32>) -> (tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@m, \
[{{?}}, {{"b"}}]>}}, tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@m, [{{"b"}}, {{}}]>}}) {{
  %h = stablehlo.sine %x : tensor<8x8xf32>
  %s = "stablehlo.sort"(%h) <{{dimension = 1 : i64}}> ({{
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %c = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }}) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %y = stablehlo.custom_call @{target}(%h) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %y, %s : tensor<8x8xf32>, tensor<8x8xf32>
}}
""")
    assert made[0] == "%h = sin(%x) : f32[8@-, 8@b]"


def test_a_maximal_sharding_does_not_propagate_to_its_group() -> None:
    assert propagated_lines("""\
mesh @m = [a=2]
mesh @max = [] devices=[0]

func @main(
  %x: f32[8, 8@a],
  %u: f32[8, 8],
) -> (f32[8, 8]) {
  %v = sin(%u) : f32[8@-, 8@-] on @max
  sharding_group(%v, group=1)
  sharding_group(%x, group=1)
  %y = tanh(%v) : f32[8, 8]
  return %y
}
""")[1:] == ["%v = sin(%u) : f32[8@-, 8@a]", "%y = tanh(%v) : f32[8@-, 8@a]"]


CALLED = """\
sdy.mesh @m = <["a"=2, "b"=2]>
func.func @main(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = func.call @f(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = func.call @f(%w) {sdy.sharding = #sdy.sharding_per_value<[<@m, [{}, {"b"}]>]>} \
: (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
}
func.func private @f(%y: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@m, [{"a"}, {?}]>}) \
-> tensor<8x8xf32> {
  %z = stablehlo.sine %y : tensor<8x8xf32>
  return %z : tensor<8x8xf32>
}
"""


def test_each_call_of_a_function_is_sharded_separately() -> None:
    """Argument and parameter with equal shardings are one value; with different shardings, a
    constraint is between them.
    """
    assert propagated_lines(CALLED) == [
        "%0 = sin(%x) : f32[8@a, 8@-]",
        "%z.1 = sin(%w) : f32[8@a, 8@b]",
        "%1 = sharding_constraint(%z.1) : f32[8@-, 8@b]",
    ]


def test_a_constraint_is_between_an_argument_and_a_parameter_of_other_sharding() -> None:
    stated = CALLED.replace(
        "%x: tensor<8x8xf32>",
        '%x: tensor<8x8xf32> {sdy.sharding = \
#sdy.sharding<@m, [{"b"}, {}]>}',
    )
    module = inline_calls(Propagate()(read(stated)))
    verify(module)
    assert [line.strip() for line in print_module(module).splitlines() if "%y" in line] == [
        "%y = sharding_constraint(%x) : f32[8@a, 8@-]",
        "%0 = sin(%y) : f32[8@a, 8@-]",
    ]


@pytest.mark.parametrize("where", ["parameter", "result"])
def test_a_function_with_only_maximal_shardings_does_not_propagate(where: str) -> None:
    single = "{sdy.sharding = #sdy.sharding<@single, []>}"
    param, result = (single, "") if where == "parameter" else ("", single)
    module = read(f"""\
sdy.mesh @m = <["a"=2]>
sdy.mesh @single = <[], device_ids=[0]>
func.func @main(%x: tensor<8xf32> {{sdy.sharding = #sdy.sharding<@m, [{{"a"}}]>}}) \
-> tensor<8xf32> {{
  %0 = func.call @f(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}}
func.func private @f(%y: tensor<8xf32> {param}) -> (tensor<8xf32> {result}) {{
  %z = stablehlo.sine %y : tensor<8xf32>
  return %z : tensor<8xf32>
}}
""")
    (made,) = inline_calls(Propagate()(module)).main.body.ops
    assert (made.name, axes(made.result.sharding)) == ("sin", ["a"])


def test_a_maximal_sharding_of_the_result_of_a_call_is_kept() -> None:
    module = read("""\
sdy.mesh @m = <["a"=2]>
sdy.mesh @single = <[], device_ids=[0]>
func.func @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"a"}]>}) -> tensor<8xf32> {
  %0 = func.call @f(%x) {sdy.sharding = #sdy.sharding_per_value<[<@single, []>]>} \
: (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func private @f(%y: tensor<8xf32>) -> tensor<8xf32> {
  %z = stablehlo.sine %y : tensor<8xf32>
  return %z : tensor<8xf32>
}
""")
    last = Propagate()(module).main.body.ops[-1]
    assert last.result.sharding is not None
    assert (last.name, last.result.sharding.mesh) == ("call", "single")


LATE = """\
sdy.mesh @m = <["x"=2, "y"=2]>
func.func @main(%p: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32> {results}) {{
  {first}
  {second}
  return %r, %s : tensor<8x8xf32>, tensor<8x8xf32>
}}
func.func private @f(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {{
  %n = stablehlo.negate %a : tensor<8x8xf32>
  return %n : tensor<8x8xf32>
}}
func.func private @g(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {{
  return %a : tensor<8x8xf32>
}}
"""
"""`%p` becomes sharded by what the second operation says, after the first call was looked at."""
WANTED = '{sdy.sharding = #sdy.sharding<@m, [{"y"}, {}]>}'


def call(name: str, callee: str, value: str) -> str:
    return f"{name} = func.call @{callee}({value}) : (tensor<8x8xf32>) -> tensor<8x8xf32>"


def axes(sharding: Sharding | None) -> list[str]:
    """Return the axes that shard the dimensions, in order."""
    assert sharding is not None
    return [axis.name for dim in sharding.dims for axis in dim.axes]


@pytest.mark.parametrize("callee", ["f", "g"])
@pytest.mark.parametrize(
    "second",
    [
        "%s = stablehlo.cosine %p : tensor<8x8xf32>",
        call("%s", "f", "%p"),
        "%t = stablehlo.add %p, %p : tensor<8x8xf32>\n  " + call("%s", "g", "%t"),
    ],
)
@pytest.mark.parametrize(
    ("level", "reached"), [("basic", False), ("aggressive", False), ("op-priority", True)]
)
def test_a_changed_argument_of_a_call_propagates_in_the_next_round(
    level: str, reached: bool, callee: str, second: str
) -> None:
    """Levels of one round do not visit the first call again, and the last level has five rounds."""
    text = LATE.format(results=WANTED, first=call("%r", callee, "%p"), second=second)
    function = Propagate(level=level)(read(text)).main
    assert axes(function.body.params[0].sharding) == ["y"]
    assert list(map(axes, function.result_shardings)) == [["y"] if reached else [], ["y"]]


@pytest.mark.parametrize("level", ["basic", "aggressive"])
def test_the_result_of_a_call_propagates_in_the_same_round(level: str) -> None:
    """The second operation propagates to `%r`, and the definition of `%r` is inside the call."""
    text = LATE.format(
        results=WANTED,
        first=call("%r", "f", "%p"),
        second="%s = stablehlo.cosine %r : tensor<8x8xf32>",
    )
    (param,) = Propagate(level=level)(read(text)).main.body.params
    assert axes(param.sharding) == ["y"]
