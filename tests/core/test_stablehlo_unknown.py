"""StableHLO operations without counterpart stay opaque text; invalid text is an error."""

import random
import re

import numpy as np
import pytest

from shardir.errors import OpaqueOperationError, ParseError
from shardir.interpret.interpreter import run
from shardir.ops.opaque import unknown_operations
from shardir.passes import Pipeline
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read
from shardir.stablehlo.writing.local_opaque import local_types
from shardir.stablehlo.writing.writer import ExportError
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.stablehlo_text import MLP

UNKNOWN = """\
sdy.mesh @m = <["a"=2]>
func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.fft %x, type = FFT, length = [8] {sdy.sharding = \
#sdy.sharding_per_value<[<@m, [{"a"}]>]>, note = "%x"} : (tensor<8xf32>) -> tensor<8xf32>
  %1:2 = "foo.bar"(%0) <{mode = #foo<mode a->b>}> ({
  ^bb0(%a: tensor<f32>):  // a comment about %a
    %b:2 = "foo.baz"(%a, %x) : (tensor<f32>, tensor<8xf32>) -> (tensor<f32>, tensor<f32>)
    stablehlo.return %b#1 : tensor<f32>
  }) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<f32>)
  %2 = stablehlo.custom_call @MoveToHost(%1#0) {backend_config = ""} : (tensor<8xf32>) -> \
tensor<8xf32>
  return %2 : tensor<8xf32>
}
"""


def test_unknown_operations_stay_opaque_and_are_reported() -> None:
    module = read(UNKNOWN)

    verify(module)
    assert [(unknown.operation, unknown.pointwise) for unknown in unknown_operations(module)] == [
        ("stablehlo.fft", False),
        ("foo.bar", False),
        ("stablehlo.custom_call @MoveToHost", True),
    ]
    assert (
        show(module)
        == """\
module {
  sdy.mesh @m = <["a"=2]>
  func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>) {
    %0 = stablehlo.fft %x, type = FFT, length = [8] {note = "%x", sdy.sharding = \
#sdy.sharding_per_value<[<@m, [{"a"}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    %v1.0, %v1.1 = "foo.bar"(%0) <{mode = #foo<mode a->b>}> ({
    ^bb0(%o0: tensor<f32>):
    %o0.1:2 = "foo.baz"(%o0, %x) : (tensor<f32>, tensor<8xf32>) -> (tensor<f32>, tensor<f32>)
    stablehlo.return %o0.1#1 : tensor<f32>
    }) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<f32>)
    %2 = stablehlo.custom_call @MoveToHost(%v1.0) {backend_config = ""} : (tensor<8xf32>) -> \
tensor<8xf32>
    return %2 : tensor<8xf32>
  }
}
"""
    )
    assert show(read(show(module))) == show(module)


def test_shardings_propagate_through_known_elementwise_operations() -> None:
    module = Pipeline.parse("propagate")(read(UNKNOWN))
    assert '%v1.0, %v1.1 = "foo.bar"' in show(module)
    assert [op.results[0].sharding is None for op in module.main.body.ops] == [False] * 3


@pytest.mark.parametrize("function", ["cgelsd", "spbtrf"])
@pytest.mark.parametrize(
    "rule", ["", " {sdy.sharding_rule = #sdy.op_sharding_rule<([i])->([i]) {i=8}>}"]
)
def test_an_unsupported_function_of_lapack_is_named_with_its_line(function: str, rule: str) -> None:
    module = read(
        "func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {\n"
        f"  %0 = stablehlo.custom_call @lapack_{function}_ffi(%x){rule} : (tensor<8xf32>) -> "
        "tensor<8xf32>\n  return %0 : tensor<8xf32>\n}"
    )
    with pytest.raises(OpaqueOperationError) as caught:
        run(module, [np.ones(8, np.float32)])
    assert str(caught.value) == (
        f"stablehlo.custom_call @lapack_{function}_ffi at <text>:2 is not supported and cannot "
        "run: the reader does not support this function of LAPACK; replace it with supported "
        "operations of StableHLO"
    )


@pytest.mark.parametrize(("function", "count"), [("sgees", 6), ("zgees", 5), ("dgesvd", 5)])
def test_a_call_of_lapack_with_missing_results_is_an_error(function: str, count: int) -> None:
    with pytest.raises(ParseError) as caught:
        read(
            "func.func @f(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {\n"
            f"  %0 = stablehlo.custom_call @lapack_{function}_ffi(%x) : (tensor<8x8xf32>) -> "
            "tensor<8x8xf32>\n  return %0 : tensor<8x8xf32>\n}"
        )
    assert f"lapack_{function}_ffi has {count} results, not 1" in str(caught.value)


def test_operations_with_effects_are_kept() -> None:
    module = Pipeline.parse("dce,cse")(
        read(
            "func.func @f(%x: tensor<8xf32>) {\n"
            "  %0 = stablehlo.custom_call @g(%x) : (tensor<8xf32>) -> tensor<8xf32>\n"
            "  %1 = stablehlo.custom_call @g(%x) : (tensor<8xf32>) -> tensor<8xf32>\n"
            "  sdy.sharding_group %x group_id=1 : tensor<8xf32>\n  return\n}"
        )
    )
    assert [op.name for op in module.main.body.ops] == ["opaque", "opaque", "sharding_group"]


def random_texts(count: int) -> list[str]:
    """Draw texts with some tokens omitted, repeated, exchanged or replaced."""
    rng = random.Random(7)
    pieces = [re.findall(r'%[\w#.]+|"[^"\n]*"|[\w.]+|->|\S|\s+', text) for text in (MLP, UNKNOWN)]
    texts = []
    for _ in range(count):
        tokens = list(rng.choice(pieces))
        for _ in range(rng.randint(1, 3)):
            at, other = rng.randrange(len(tokens)), rng.choice(rng.choice(pieces))
            match rng.randrange(4):
                case 0:
                    del tokens[at]
                case 1:
                    tokens.insert(at, other)
                case 2:
                    tokens[at] = other
                case _:
                    tokens[at] = rng.choice(("-1", "99999999999999999999", '"\\zz"', "(", "<", "%"))
        texts.append("".join(tokens))
    return texts


def test_random_texts_raise_errors_with_locations() -> None:
    for text in random_texts(1500):
        try:
            module = read(text)
        except ParseError:
            continue
        show(module)


def partitioned_call(attributes: str, types: str, passes: str) -> list[str]:
    """Return the lines of an opaque operation on sharded tensors in the text of a partitioned
    program."""
    module = read(f"""\
sdy.mesh @m = <["a"=2]>
func.func @f(%x: tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@m, [{{"a"}}, {{}}]>}})
    -> tensor<8x4xf32> {{
  %0 = stablehlo.custom_call {attributes} : {types}
  return %0 : tensor<8x4xf32>
}}
""")
    text = show(Pipeline.parse(passes)(module))
    return [line.strip() for line in text.splitlines() if "custom_call" in line]


RULE = "sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j]) {i=8, j=4}, custom>"


@pytest.mark.parametrize("types", ["(tensor<8x4xf32>) -> tensor<8x4xf32>", "tensor<8x4xf32>"])
@pytest.mark.parametrize(
    ("attributes", "kept"),
    [
        (f"{{{RULE}}}", ""),
        (f'{{k = "a->b", {RULE}}}', ' {k = "a->b"}'),
        (f"{{{RULE}, k = 1}}", " {k = 1}"),
    ],
)
def test_opaque_operations_on_shards_have_the_types_of_shards(
    attributes: str, kept: str, types: str
) -> None:
    """The factor rule has the sizes of the global tensors, so that it is left out."""
    passes = "propagate,reshard,partition"
    assert partitioned_call(f"@foo(%x) {attributes}", types, passes) == [
        f"%0 = stablehlo.custom_call @foo(%x){kept} : {types.replace('8x4', '4x4')}"
    ]
    assert partitioned_call(f"@foo(%x) {attributes}", types, "propagate")[0].count("8x4") > 0


def test_types_of_shards_that_the_text_cannot_state_are_refused() -> None:
    """A captured value has no type in the text, and the types are not those of the tensors."""
    module = parse("""\
func @f(
  %x: f32[4],
  %y: f32[4],
) -> (f32[4]) {
  %z = opaque(%x, %y, operation="a.b", head="a.b(%) ({ c.d % })", attributes="", types=": (tensor<8xf32>) -> tensor<8xf32>") : f32[4]
  return %z
}
""")  # noqa: E501
    with pytest.raises(ExportError) as caught:
        local_types(module.main.body.ops[0])
    assert str(caught.value) == (
        "a.b states the types ': (tensor<8xf32>) -> tensor<8xf32>', which are not those of its "
        "tensors on one device; replicate its operands and results, or state the type of each of "
        "them"
    )
