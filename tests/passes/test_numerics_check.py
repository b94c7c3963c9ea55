"""`Check`: finds the pass that changed the results, and shows the wrong operation."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings, strategies as st

from shardir.errors import NumbersError
from shardir.ir.module import Block, Module, Op, Value
from shardir.ir.operation import OPS
from shardir.passes import PASSES, Pass, Pipeline
from shardir.passes.numerics_check import NumericsCheck
from shardir.text.parser import parse
from tests.passes.sharded_evaluation import annotate_randomly
from tests.programs.strategies import modules

TEXT = """\
mesh @m = [x=2]

func @f(
  %a: f32[4@x],
) -> (f32[], f32[4@x]) {
  %e = exp(%a) : f32[4] loc("mlp.py":7:3)
  %s = sum(%e, dims=[0]) : f32[] loc("mlp.py":8:3)
  %n = neg(%e) : f32[4] loc("mlp.py":9:3)
  return %s, %n
}
"""
SUM = "func @f(%a: f32[4]) -> (f32[]) {\n  %s = sum(%a, dims=[0]) : f32[]\n  return %s\n}"
PIPELINE = "propagate,reshard,partition,cse,dce"


@contextmanager
def broken(old: str, new: str) -> Iterator[None]:
    """Register a pass `break` that replaces one operation by another."""

    @dataclass(frozen=True)
    class Break(Pass, name="break"):
        def __call__(self, module: Module) -> Module:
            def wrong(op: Op) -> Op:
                return replace(op, spec=OPS[new], attrs={}) if op.name == old else op

            body = module.main.body
            body = replace(body, ops=tuple(map(wrong, body.ops)))
            return replace(module, functions=(replace(module.main, body=body),))

    try:
        yield
    finally:
        del PASSES["break"]


def test_correct_passes_are_accepted() -> None:
    Pipeline.parse(PIPELINE)(parse(TEXT), NumericsCheck())


def test_the_error_names_the_pass_the_result_and_the_operation() -> None:
    with broken("neg", "abs"), pytest.raises(NumbersError) as caught:
        Pipeline.parse("propagate,break,reshard")(parse(TEXT), NumericsCheck())
    assert str(caught.value) == (
        "pass 'break' changed the results of @f: result 1 (%n) differs by up to 40.2 at [0], "
        "where -20.0855 became 20.0855\n"
        "the first value that differs is the result of\n"
        '  | %n = abs(%e) : f32[4@x] loc("mlp.py":9:3)'
    )
    assert caught.value.__notes__ == [
        "while running 'break' of the pipeline 'propagate,break,reshard'"
    ]


@contextmanager
def returning(choose: Callable[[Block], Block]) -> Iterator[None]:
    """Register a pass `change` that replaces the body of the function."""

    @dataclass(frozen=True)
    class Change(Pass, name="change"):
        def __call__(self, module: Module) -> Module:
            main = replace(module.main, body=choose(module.main.body))
            return replace(module, functions=(main,))

    try:
        yield
    finally:
        del PASSES["change"]


def test_a_pass_may_not_change_the_types_of_results() -> None:
    with (
        returning(lambda body: replace(body, returns=body.params)),
        pytest.raises(NumbersError) as caught,
    ):
        Pipeline.parse("change")(parse(SUM), NumericsCheck())
    assert str(caught.value) == (
        "pass 'change' changed @f: the results have the types float32[4] instead of float32[]"
    )


def test_a_pass_may_not_change_the_types_of_parameters() -> None:
    def add_parameter(body: Block) -> Block:
        return replace(body, params=(*body.params, Value(body.params[0].type, "b")))

    with returning(add_parameter), pytest.raises(NumbersError) as caught:
        Pipeline.parse("change")(parse(SUM), NumericsCheck())
    assert str(caught.value) == (
        "pass 'change' changed the types of the parameters of @f from (f32[4]) to (f32[4], f32[4])"
    )


def test_the_first_wrong_operation_of_a_partitioned_program_is_found() -> None:
    with broken("exp", "sin"), pytest.raises(NumbersError) as caught:
        Pipeline.parse(f"{PIPELINE},break")(parse(TEXT), NumericsCheck())
    assert str(caught.value).splitlines()[-1] == '  | %e = sin(%a) : f32[2] loc("mlp.py":7:3)'


def test_disagreement_between_devices_is_found() -> None:
    with broken("all-reduce", "neg"), pytest.raises(NumbersError) as caught:
        Pipeline.parse(f"{PIPELINE},break")(parse(TEXT), NumericsCheck())
    assert str(caught.value) == (
        "after pass 'break' @f does not run: devices 0 and 1 hold different values for the same "
        "shard of a tensor f32[]\n"
        "the first value that differs is the result of\n"
        '  | %s = neg(%s.partial) : f32[] loc("mlp.py":8:3) '
        'why("sum over dimension 0 of %e of %s = sum")'
    )


@contextmanager
def replacing(text: str) -> Iterator[None]:
    """Register a pass `replace` whose result is the program `text`."""

    @dataclass(frozen=True)
    class Replace(Pass, name="replace"):
        def __call__(self, module: Module) -> Module:
            return parse(text)

    try:
        yield
    finally:
        del PASSES["replace"]


PARTITIONED = """\
mesh @m = [x=2]

spmd func @f(
  %a: f32[2] of f32[4@x],
) -> (f32[] of f32[], f32[2] of f32[4@x]) {
  %e = exp(%a) : f32[2]
  %s.partial = sum(%e, dims=[0]) : f32[]
  %s = all-reduce(%s.partial, axes=[x], op=add) : f32[]
  %n = neg(%e) : f32[2]
  return %s, %n
}
"""
UNREDUCED = TEXT.replace(
    "  %s = sum(%e, dims=[0]) : f32[]",
    "  %s.partial = sum(%e, dims=[0]) : f32[] unreduced(x)\n  %s = reshard(%s.partial) : f32[]",
).replace(" : f32[4]", " : f32[4@x]")
GATHERED = """\
mesh @m = [x=2]

func @f(
  %a: f32[4@x],
) -> (f32[4@-]) {
  %g = reshard(%a) : f32[4@-]
  return %g
}
"""
WRONGLY_GATHERED = """\
mesh @m = [x=2]

spmd func @f(
  %a: f32[2] of f32[4@x],
) -> (f32[4] of f32[4@-]) {
  %g = concatenate(%a, %a, dim=0) : f32[4]
  return %g
}
"""
UNSHARDED = TEXT.replace("f32[4@x]", "f32[4]")


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        # No value has the name of a former one.
        (
            TEXT,
            TEXT.replace("%n", "%m").replace("%s", "%t").replace("%e", "%i").replace("exp", "sin"),
            None,
        ),
        # The partial sums of the devices are added.
        (UNREDUCED, PARTITIONED.replace("neg", "abs"), "%n = abs(%e) : f32[2]"),
        # The new %e is gathered.
        (
            UNREDUCED,
            PARTITIONED.replace(
                "%e = exp(%a) : f32[2]",
                "%h = exp(%a) : f32[2]\n  %e = all-gather(%h, dim=0, axes=[x]) : f32[4]",
            )
            .replace("sum(%e", "sum(%h")
            .replace("neg(%e)", "abs(%h)"),
            "%n = abs(%h) : f32[2]",
        ),
        # The devices have different values of a replicated tensor.
        (GATHERED, WRONGLY_GATHERED, "%g = concatenate(%a, %a, dim=0) : f32[4]"),
        # The former %e has another type, and no sharding or one with shards of the new type.
        *(
            (
                text,
                text.replace("%e = exp(%a) : f32[4", "%h = exp(%a) : f32[4")
                .replace("%s =", "%e = slice(%h, starts=[0], strides=[1]) : f32[2]\n  %s =")
                .replace("neg(%e)", "abs(%h)")
                .replace("sum(%e", "sum(%h"),
                "%n = abs(%h)",
            )
            for text in (UNSHARDED, TEXT.replace(" : f32[4]", " : f32[4@x]"))
        ),
    ],
)
def test_values_of_one_name_are_compared_if_they_are_the_same_tensor(
    before: str, after: str, shown: str | None
) -> None:
    with replacing(after), pytest.raises(NumbersError) as caught:
        Pipeline.parse("replace")(parse(before), NumericsCheck())
    _, _, found = str(caught.value).partition("\nthe first value that differs is the result of\n")
    assert found.startswith(f"  | {shown}") if shown else not found


def test_one_check_may_observe_several_runs() -> None:
    check = NumericsCheck()
    Pipeline.parse("cse")(parse(TEXT), check)
    Pipeline.parse("cse")(parse(TEXT.replace("exp", "sin")), check)
    with broken("neg", "abs"), pytest.raises(NumbersError, match="pass 'break' changed"):
        Pipeline.parse("break")(parse(TEXT.replace("exp", "cos")), check)


def test_unstable_results_are_not_errors() -> None:
    """The sum depends on the order of its terms, and the sine on all digits of the sum."""
    text = """\
mesh @m = [x=8]

func @f(
  %a: f32[64@x, 64],
) -> (f32[]) {
  %e = exp(%a) : f32[64, 64]
  %s = sum(%e, dims=[0, 1]) : f32[]
  %c = constant(value=1e6) : f32[]
  %w = mul(%s, %c) : f32[]
  %y = sin(%w) : f32[]
  return %y
}
"""
    Pipeline.parse(PIPELINE)(parse(text), NumericsCheck())


def test_ill_conditioned_results_are_not_errors() -> None:
    text = """\
mesh @m = [x=8]

func @f(
  %a: f32[8@x, 8],
) -> (f32[]) {
  %t = constant(value=0.1) : f32[8, 8]
  %p = mul(%a, %t) : f32[8, 8]
  %s = sum(%p, dims=[0, 1]) : f32[]
  %z = sub(%s, %s) : f32[]
  %c = constant(value=0.0) : f32[]
  %r = div(%z, %c) : f32[]
  return %r
}
"""
    Pipeline.parse(PIPELINE)(parse(text), NumericsCheck())


@settings(max_examples=30)
@given(st.data())
def test_random_programs_pass_through_the_whole_pipeline(data: st.DataObject) -> None:
    module = annotate_randomly(data, data.draw(modules()), lambda _: data.draw(st.booleans()))
    Pipeline.parse(f"{PIPELINE},simplify,dce")(module, NumericsCheck())
