"""Which chains of layers can be folded."""

from collections.abc import Sequence
from typing import Any

import pytest

from shardir.ir.module import Module
from shardir.passes.planning.programs import extrapolation, fold_layers
from shardir.passes.planning.programs.extrapolation import fold_program
from shardir.passes.planning.programs.fold_layers import FoldedProgram, LayerFolder, count_layers
from shardir.text.parser import parse

SQUARE = "f32[8, 8]"


def chain(
    numbers: Sequence[int] = range(8),
    *,
    steps: Sequence[str] = ("tanh",),
    first: int = 0,
    last: int = 8,
    biases: Sequence[str] = ("f32[8]",) * 8,
    rest: Sequence[str] = (),
    returns: Sequence[str] = ("h8",),
    more: Sequence[str] = (),
) -> Module:
    """Return a program of eight layers with these numbers. A layer is a product with its
    weight and a step, and does not use its bias. The layers before `first` and from `last` on have
    an additional negation, and there are more parameters."""
    params = [f"%layers.{n}.w: {SQUARE}" for n in numbers]
    params += [f"%layers.{n}.b: {type}" for n, type in zip(numbers, biases, strict=True)]
    lines = ["%h0 = neg(%x) : f32[8, 8]"]
    for i, n in enumerate(numbers):
        lines.append(f'%d{i} = dot(%h{i}, %layers.{n}.w, dims="ij,jk->ik") : {SQUARE}')
        if not first <= i < last:
            lines.append(f"%n{i} = neg(%d{i}) : {SQUARE}")
        operand = f"%d{i}" if first <= i < last else f"%n{i}"
        lines.append(f"%h{i + 1} = {steps[i % len(steps)]}({operand}) : {SQUARE}")
    lines += [*rest, f"return {', '.join(f'%{name}' for name in returns)}"]
    body = "\n".join(f"  {line}" for line in lines)
    params = [f"%x: {SQUARE}", *params, *more]
    results = ", ".join([SQUARE] * len(returns))
    text = f"func @f({', '.join(params)}) -> ({results}) {{\n{body}\n}}\n"
    return parse(text)


def fold(kept: int, **options: Any) -> FoldedProgram | None:
    """Return the folded program of a chain."""
    return LayerFolder(chain(**options)).fold(kept)


def lines_of(folded: FoldedProgram | None) -> list[str]:
    assert folded is not None
    return [f"{op.name}({', '.join(value.name for value in op.operands)}) -> {op.result.name}"
            for op in folded.module.main.body.ops]  # fmt: skip


def test_the_first_layers_are_kept() -> None:
    folded = fold(2)
    assert lines_of(folded) == [
        "neg(x) -> h0",
        "dot(h0, layers.0.w) -> d0",
        "tanh(d0) -> h1",
        "dot(h1, layers.1.w) -> d1",
        "tanh(d1) -> h2",
    ]
    assert folded is not None
    assert folded.arguments == (0, 1, 2, 9, 10)
    params = {"layers.0.w", "layers.1.w", "layers.0.b", "layers.1.b"}
    assert folded.repeated == params | {"d0", "h1", "d1", "h2"}


@pytest.mark.parametrize(
    ("returns", "kept"),
    [
        (("h8",), ["h2"]),
        (("x", "h1", "h3", "h7", "h8"), ["x", "h1", "h2"]),
        (("h2", "h2", "h8"), ["h2", "h2"]),
    ],
)
def test_the_result_of_the_last_layer_is_that_of_the_last_kept_one(
    returns: Sequence[str], kept: Sequence[str]
) -> None:
    """A layer that is kept returns its results once. Those of other layers are dropped."""
    folded = fold(2, returns=returns)
    assert folded is not None
    assert [value.name for value in folded.module.main.body.returns] == kept


def test_a_kept_repetition_that_follows_a_removed_one_follows_what_enters_the_run() -> None:
    """The first and the last layer differ from the others."""
    assert lines_of(fold(3, first=1, last=7)) == [
        "neg(x) -> h0",
        "dot(h0, layers.0.w) -> d0",
        "neg(d0) -> n0",
        "tanh(n0) -> h1",
        "dot(h1, layers.1.w) -> d1",
        "tanh(d1) -> h2",
        "dot(h2, layers.2.w) -> d2",
        "neg(d2) -> n7",
        "tanh(n7) -> h8",
    ]


@pytest.mark.parametrize(
    ("kept", "options"),
    [
        (5, {}),
        (2, {"steps": ("tanh", "exp")}),
        (2, {"numbers": range(10, 18)}),
        (2, {"biases": (*["f32[8]"] * 7, "f32[4]")}),
        (2, {"rest": ("%s = add(%h3, %h8) : f32[8, 8]",), "returns": ("s",)}),
    ],
    ids=[
        "more layers kept than removed",
        "layers of two kinds",
        "numbers that no kept layer has",
        "a last layer of another type",
        "a use of a removed layer",
    ],
)
def test_other_programs_are_not_folded(kept: int, options: dict[str, object]) -> None:
    assert fold(kept, **options) is None


def test_programs_of_few_layers_are_not_folded() -> None:
    """Two of the layers could differ from the others, so that one layer would be a repetition."""
    few: dict[str, Any] = {"numbers": range(3), "biases": ["f32[8]"] * 3, "returns": ("h3",)}
    assert fold(1, **few) is None


def test_a_run_that_is_shorter_than_the_removed_layers_is_not_folded() -> None:
    """Six operations are repeated, and the parameters of eight layers are not used."""
    params = ", ".join(f"%layers.{n}.b: f32[4]" for n in range(8))
    lines = "".join(f"  %h{n + 1} = tanh(%h{n}) : f32[4]\n" for n in range(6))
    text = f"func @f(%h0: f32[4], {params}) -> (f32[4]) {{\n{lines}  return %h6\n}}\n"
    assert LayerFolder(parse(text)).fold(1) is None


def test_a_repetition_has_a_limited_number_of_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_layers, "MAX_PERIOD", 1)
    assert fold(2) is None
    monkeypatch.setattr(fold_layers, "MAX_PERIOD", 2)
    assert fold(2) is not None


def test_layers_are_those_of_one_name_and_type() -> None:
    params = "%a.0: f32[4], %a.1: f32[4], %a.2: f32[8], %b.7: f32[4], %c: f32[4]"
    module = parse(f"func @f({params}) -> () {{\n  return\n}}\n")
    assert count_layers(module.main.body.params) == 2
    assert count_layers(module.main.body.params[4:]) == 0


def test_large_programs_of_many_layers_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = len(chain().main.body.ops)
    for least, is_folded in ((operations, True), (operations + 1, False)):
        monkeypatch.setattr(extrapolation, "MIN_OPERATIONS", least)
        assert (fold_program(chain()) is not None) == is_folded
    monkeypatch.setattr(extrapolation, "MIN_OPERATIONS", operations)
    for layers, is_folded in ((8, True), (9, False)):
        monkeypatch.setattr(extrapolation, "MIN_LAYERS", layers)
        assert (fold_program(chain()) is not None) == is_folded


@pytest.mark.parametrize(("impossible", "kept"), [((), 2), ((1,), 3), ((2,), None), ((3,), 2)])
def test_a_program_is_folded_to_two_or_three_layers(
    impossible: tuple[int, ...], kept: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some numbers of layers may be impossible; costs are extrapolated from two programs."""
    monkeypatch.setattr(extrapolation, "MIN_OPERATIONS", 0)
    original = LayerFolder.fold
    monkeypatch.setattr(
        LayerFolder, "fold",
        lambda self, count: None if count in impossible else original(self, count),
    )  # fmt: skip
    found = fold_program(chain())
    assert (None if found is None else found.kept) == kept


@pytest.mark.parametrize(
    ("options", "is_folded"),
    [
        ({}, True),
        ({"more": ["%layers.1.c: f32[4]", "%layers.5.c: f32[4]"]}, True),
        ({"more": ["%layers.5.c: f32[4]"]}, False),
        ({"biases": [*["f32[8]"] * 5, "f32[4]", *["f32[8]"] * 2]}, False),
    ],
    ids=["all alike", "a parameter of two layers", "one of a removed layer", "another type"],
)
def test_each_parameter_has_a_representative(
    options: dict[str, Any], is_folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layer 5 is represented by layer 1, from which it may not differ."""
    monkeypatch.setattr(extrapolation, "MIN_OPERATIONS", 0)
    assert (fold_program(chain(**options)) is not None) == is_folded
