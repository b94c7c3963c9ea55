"""Custom sharding rules: the IR before and after partitioning, without remains of the rules."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.numpy as snp
from shardir.errors import RuleError
from shardir.frontend.cli.main import app
from shardir.ir.module import Module
from shardir.op_rules import custom_rules
from shardir.passes import Pipeline, Propagate
from shardir.passes.explain import coverage, explain
from shardir.sharding import NamedSharding, PartitionSpec as P
from shardir.stablehlo.printer import show as show_stablehlo
from shardir.stablehlo.reader import read
from shardir.text.parser import parse
from shardir.text.printer import Printer, print_module

BEFORE = """\
mesh @m = [a=2, b=2]

func @f(
  %x: f32[8@a, 16],
  %y: f32[16, 4@b],
) -> (f32[8, 4]) {
  %z = opaque(%x, %y, operation="stablehlo.custom_call @mine", \
head="stablehlo.custom_call @mine(%, %)", attributes="", \
types=": (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>") : f32[8, 4]
  return %z
}
"""
AFTER = """\
mesh @m = [a=2, b=2]

func @f(
  %x: f32[8@a, 16@-],
  %y: f32[16@-, 4@b],
) -> (f32[8@a, 4@b]) {
  %z = opaque(%x, %y, operation="stablehlo.custom_call @mine", \
head="stablehlo.custom_call @mine(%, %)", attributes="sdy.sharding_rule = \
#sdy.op_sharding_rule<([i, j], [j, k])->([i, k]) {i=8, j=16, k=4} reduction={j}, custom>", \
types=": (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>", \
rule="([i, j], [j, k]) -> ([i, k]) {i=8, j=16, k=4} reduction={j}") : f32[8@a, 4@b]
  return %z
}
"""
MINE = {"mine": "i j, j k -> i k reduction={j}"}


@pytest.fixture
def restore_registered_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the rules that the test registers for the process."""
    monkeypatch.setattr(custom_rules, "_process", {})


def test_shardings_propagate_through_an_opaque_operation() -> None:
    with shardir.rules(MINE):
        after = Propagate()(parse(BEFORE))

    assert print_module(after) == AFTER
    assert print_module(parse(AFTER)) == AFTER
    assert print_module(Propagate()(parse(AFTER))) == AFTER  # the operation keeps its rule
    assert "8@-, 4@-" in print_module(Propagate()(parse(BEFORE)))  # the block has ended


def types(module: Module) -> list[str]:
    printer = Printer(module.meshes)
    return [printer.sharded_type(value.type, value.sharding) for value in module.main.body.values()]


def test_a_rule_round_trips_through_stablehlo() -> None:
    with shardir.rules(MINE):
        text = show_stablehlo(Propagate()(parse(BEFORE)))

    assert "sdy.sharding_rule = #sdy.op_sharding_rule<([i, j], [j, k])->([i, k])" in text
    assert types(read(text)) == types(parse(AFTER))
    assert types(Propagate()(read(text.replace('@m, [{"a"}, {"b"}]', "@m, [{?}, {?}]")))) == (
        types(parse(AFTER))
    )


STABLEHLO = """\
sdy.mesh @m = <["a"=2]>
func.func @f(%x: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"a"}, {}]>}) \
-> tensor<8x4xf32> {
  %0 = stablehlo.custom_call @mine(%x) {sdy.sharding_rule = \
#sdy.op_sharding_rule<([i, j])->([i, k]) {i=8, j=4, k=4}, custom>} \
: (tensor<8x4xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
"""


def result(module: Module) -> str:
    return print_module(module).partition("-> (")[2].partition(")")[0]


def test_a_rule_stated_in_the_text_has_priority() -> None:
    with shardir.rules({"mine": "i j -> j i"}):
        stated = Propagate()(read(STABLEHLO))
        unstated = Propagate()(read(STABLEHLO.replace("sdy.sharding_rule", "other")))

    assert result(stated) == "f32[8@a, 4@-]"
    assert result(unstated) == "f32[8@-, 4@a]"


def test_operations_in_blocks_have_rules() -> None:
    made = BEFORE[BEFORE.index("opaque") : BEFORE.index("\n  return %z")]
    branch = f"{{\n    %c = {made}\n    yield %c\n  }}"
    text = BEFORE.replace(made, f"case(%i) : f32[8, 4] {branch} {branch.replace('%c', '%d')}")
    text = text.replace("%x: f32[8@a", "%i: i32[],\n  %x: f32[8@a")
    with shardir.rules(MINE):
        module = Propagate()(parse(text))

    assert result(module) == "f32[8@a, 4@b]"
    assert print_module(module).count("sdy.sharding_rule") == 2


OURS = """\
mesh @m = [a=2, b=2]

func @f(
  %x: f32[8@a, 4@b],
) -> (f32[8, 4]) {
  %y = tanh(%x) : f32[8, 4]
  return %y
}
"""


def test_the_rule_of_a_known_operation_is_replaced() -> None:
    with shardir.rules({"tanh": "i j -> i k"}):
        module = Propagate()(parse(OURS))
        missing = explain(parse(OURS), "y").absences

    assert result(module) == "f32[8@a, 4@-]"
    assert [each.axis for each in missing] == ["b"]
    assert result(Propagate()(parse(OURS))) == "f32[8@a, 4@b]"


def test_results_do_not_depend_on_the_stated_rule() -> None:
    """Rules guide propagation; partitioning of an operation does not depend on them."""
    mesh = shardir.make_mesh((2, 2), ("a", "b"))
    x = np.arange(16, dtype=np.float32).reshape(4, 4)

    @shardir.jit
    def f(x: Any) -> Any:
        return snp.tanh(x)

    cut = shardir.device_put(x, NamedSharding(mesh, P("a", "b")))
    plain = f(cut)
    with shardir.rules({"tanh": "i j -> j i"}):
        turned = f(cut)

    np.testing.assert_array_equal(np.asarray(turned), np.asarray(plain))
    assert plain.sharding.spec == P("a", "b")
    assert turned.sharding.spec != plain.sharding.spec


def test_inner_blocks_have_priority() -> None:
    with shardir.rules({"mine": "i j, k l -> m n"}), shardir.rules(MINE):
        assert result(Propagate()(parse(BEFORE))) == "f32[8@a, 4@b]"


@pytest.mark.usefixtures("restore_registered_rules")
def test_a_rule_registered_for_the_process() -> None:
    shardir.register_rule("mine", "i j, j k -> i k", reduction=("j",))
    shardir.register_rule("mine", "i j, j k -> i k", reduction="j")

    assert result(Propagate()(parse(BEFORE))) == "f32[8@a, 4@b]"
    with pytest.raises(RuleError) as raised:
        shardir.register_rule("mine", "i j, j k -> i k")
    assert str(raised.value).startswith(
        "'mine' has the rule 'i j, j k -> i k reduction={j}' already; pass replace=True, or use "
        "the new rule in a block of shardir.rules\n   --> tests/passes/test_custom_rules.py:"
    )
    shardir.register_rule("mine", "i j, j k -> i l", replace=True)
    assert result(Propagate()(parse(BEFORE))) == "f32[8@a, 4@-]"


def test_an_operation_with_a_rule_is_not_reported_as_unknown() -> None:
    module = parse(BEFORE)
    with shardir.rules(MINE):
        assert not coverage(module).unruled
    assert [each.op for each in coverage(module).unruled] == ["%z = opaque"]


def test_the_error_of_a_mismatched_rule_states_the_location() -> None:
    with shardir.rules({"mine": "i, i -> i"}), pytest.raises(RuleError) as raised:
        Propagate()(parse(BEFORE))

    assert str(raised.value) == (
        "operand 0 has 2 dimensions, but the rule 'i, i -> i' gives it 1 "
        "(stated for 'stablehlo.custom_call @mine', at %z)"
    )


def test_a_rule_of_a_loop_is_an_error() -> None:
    with pytest.raises(RuleError) as raised, shardir.rules({"while": "i -> i"}):
        pass

    assert str(raised.value).startswith(
        "'while' has no factors of its own: shardings pass between its operands, its "
        "blocks and its results; state rules for the operations in its blocks\n"
        "   --> tests/passes/test_custom_rules.py:"
    )


def test_opt_accepts_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.ir"
    file.write_text(BEFORE, "utf-8")
    stated = ["--rule", "mine: i j, j k -> i k reduction={j}"]
    app(["opt", str(file), "--passes", "propagate", *stated], standalone_mode=False)
    assert capsys.readouterr().out == AFTER

    app(["explain", str(file), "--coverage", *stated], standalone_mode=False)
    assert "0 operations without a factor rule" in capsys.readouterr().out


def test_opt_rejects_invalid_rules(tmp_path: Path) -> None:
    file = tmp_path / "mine.ir"
    file.write_text(BEFORE, "utf-8")
    with pytest.raises(shardir.ShardirError) as raised:
        app(["opt", str(file), "--rule", "mine"], standalone_mode=False)
    assert str(raised.value) == (
        "'mine' is not a sharding rule; write it as my_op: i j, j k -> i k"
    )


def test_passes_after_propagation_use_the_rule() -> None:
    with shardir.rules(MINE):
        text = BEFORE.replace("8@a, 16", "8, 16@a")
        module = Pipeline.parse("propagate,reshard")(parse(text))
    assert [op.name for op in module.main.body.ops] == ["opaque", "reshard"]
