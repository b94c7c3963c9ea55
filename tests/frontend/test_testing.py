"""`shardir.testing`: counts of collectives, and comparison of sharded and unsharded results."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.numpy as np_
from shardir import PartitionSpec as P, lax, testing
from shardir.frontend import testing as home
from shardir.frontend.dispatch.programs import runnable
from shardir.ir.builder import Builder
from shardir.ir.module import Module
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.text.parser import parse

W1, W2, X = (np.ones(shape, np.float32) for shape in [(64, 128), (128, 32), (256, 64)])

TEXT = """\
mesh @m = [data=2, model=4]

func @mlp(%x: f32[8@data, 16@-], %w: f32[16@model, 4@-]) -> (f32[8, 4]) {
  %y = dot(%x, %w, dims="bi,io->bo") : f32[8, 4]
  return %y
}
"""


@pytest.fixture(autouse=True)
def eight_devices() -> Any:
    with shardir.cpu_devices(8):
        yield


def placed(*spec: Any) -> Any:
    return shardir.NamedSharding(shardir.make_mesh((4, 2), ("data", "model")), P(*spec))


def model(w1: Any, w2: Any, x: Any) -> Any:
    return np_.maximum(x @ w1, 0) @ w2


def sharded() -> Any:
    places = (placed(None, "model"), placed("model", None), placed("data", None))
    return shardir.jit(model, in_shardings=places)


def test_collectives_of_a_function_a_stage_a_module_and_a_text_are_the_same() -> None:
    function, args = sharded(), (W1, W2, X)
    lowered = function.lower(*args)
    compiled = lowered.compile()
    found = testing.collectives(function, args)
    assert [(each.kind, each.axes, each.group_size, each.nbytes, each.sent) for each in found] == [
        ("all-reduce", ("model",), 2, 64 * 32 * 4, 64 * 32 * 4)
    ]
    for program in (lowered, compiled, lowered.module, compiled.module, str(compiled.module)):
        others = testing.collectives(program)
        assert [(each.kind, each.axes, each.value) for each in others] == [
            (each.kind, each.axes, each.value) for each in found
        ]
    assert compiled.collectives() == found


def test_correct_counts_pass() -> None:
    testing.assert_collectives(sharded(), (W1, W2, X), all_reduce=1, all_gather=0)
    testing.assert_collectives(model, (W1, W2, X))
    testing.assert_collectives(TEXT, all_reduce=1)


def test_a_wrong_count_lists_the_collectives() -> None:
    with pytest.raises(testing.CommunicationError) as error:
        testing.assert_collectives(sharded(), (W1, W2, X), all_reduce=0, all_gather=1)
    assert re.sub(r"\(.*test_testing.py:\d+\)", "(here)", str(error.value)) == (
        "model runs 1 all_reduce instead of 0, 0 all_gather instead of 1\n"
        "  all-reduce over model of 8.0 KiB: sum over 'i' of %3 = dot (here)"
    )


def test_collectives_without_an_expected_count_are_errors() -> None:
    with pytest.raises(testing.CommunicationError, match=r"^@mlp runs 1 all_reduce instead of 0"):
        testing.assert_collectives(TEXT)


def test_collectives_in_loops_are_multiplied_by_the_trip_count() -> None:
    def steps(w: Any, x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, h: np_.tanh(h @ w), x)

    places = (placed("model", None), placed("data", "model"))
    function = shardir.jit(steps, in_shardings=places, out_shardings=placed("data", "model"))
    args = (np.ones((8, 8), np.float32), np.ones((8, 8), np.float32))
    (each,) = {each.executions for each in testing.collectives(function, args)}
    assert each == 3
    testing.assert_collectives(function, args, all_to_all=0, all_reduce=0, reduce_scatter=3)


def test_an_unknown_kind_of_collective_is_an_error() -> None:
    with pytest.raises(shardir.ShardirError) as error:
        testing.assert_collectives(TEXT, allreduce=1)
    assert str(error.value).startswith(
        "no collective is named 'allreduce'; did you mean 'all_reduce'?"
    )


def test_a_value_that_is_no_program_is_an_error() -> None:
    with pytest.raises(shardir.ShardirError, match="a program is a function, a module or its text"):
        testing.collectives(3)  # type: ignore[arg-type]


def test_equivalent_programs_pass() -> None:
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(x.shape).astype(np.float32) for x in (W1, W2, X)]
    testing.assert_equivalent(sharded(), args)
    testing.assert_equivalent(
        model, args, (placed(None, "model"), placed("model", None), placed("data", None))
    )
    testing.assert_equivalent(model, args, placed("data", "model"))
    testing.assert_equivalent(TEXT)
    testing.assert_equivalent(Pipeline.parse(DEFAULT_PIPELINE)(parse(TEXT)))
    key = shardir.random.key(0)
    testing.assert_equivalent(lambda key: shardir.random.split(key), (key,))


def test_a_function_that_captures_arrays_passes() -> None:
    bias = np_.arange(8.0)
    testing.assert_equivalent(lambda x: x + bias, (np.ones(8, np.float32),), placed("data"))


def halved(module: Module) -> Module:
    """A pass that computes wrong results."""
    body = module.main.body
    b = Builder()
    b.ops.extend(body.ops)
    (result,) = body.returns
    half = b.mul(result, b.full(0.5, result.type))
    main = replace(module.main, body=b.block(body.params, [half]))
    return replace(module, functions=(main, *module.functions[1:]))


def test_a_program_with_different_results_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = runnable.default_pipeline()
    monkeypatch.setattr(home, "default_pipeline", lambda: lambda module: halved(whole(module)))
    with pytest.raises(testing.DifferentResultsError) as error:
        testing.assert_equivalent(TEXT)
    assert re.sub(r"by [0-9.e-]+,", "by much,", str(error.value)) == (
        "result 0 of @mlp differs from the result of the unsharded program (by much, 0.0002 is "
        "allowed); find the pass with shardir.config.update('verify', True)"
    )
