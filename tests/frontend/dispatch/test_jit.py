"""`jit`: one compiled program for each signature of the arguments."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir import ops
from shardir.errors import PipelineError
from shardir.frontend.arrays.array import Array, ShapeDtypeStruct, from_numpy
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.config import config, enable_x64
from shardir.frontend.dispatch.eager import public
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import ArgumentError, DeletedArrayError, NotAnArrayError
from shardir.frontend.shardings.devices import devices
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import P
from shardir.frontend.shardings.positional_sharding import PositionalSharding
from shardir.frontend.shardings.sharding import NamedSharding, SingleDeviceSharding
from shardir.frontend.shardings.traced_constraints import constrain
from shardir.frontend.tracing.operands import align, as_tracer
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE
from tests.error_assertions import assert_raises_exactly, first_line

MESH = make_mesh((4, 2), ("data", "model"))
NUMBERS = np.arange(32, dtype=np.float32).reshape(8, 4)


@public()
def add(x: Any, y: Any) -> Any:
    x, y = align(x, y)
    return emit(ops.add, x, y, weak=x.weak_type)


@public()
def dot(x: Any, w: Any) -> Any:
    return emit(ops.dot, *align_types(x, w), dims="bi,ih->bh")


def align_types(*xs: Any) -> Any:
    return tuple(map(as_tracer, xs))


def named(*spec: Any) -> NamedSharding:
    return NamedSharding(MESH, P(*spec))


def test_a_jitted_function_computes_the_result_of_the_function() -> None:
    @jit
    def f(x: Any, y: Any) -> Any:
        """What it does."""
        return {"sum": add(x, y), "pair": (x, [y, None])}

    out = f(NUMBERS, 2)
    np.testing.assert_array_equal(out["sum"], NUMBERS + 2)
    np.testing.assert_array_equal(out["pair"][0], NUMBERS)
    assert out["pair"][1][0].weak_type
    assert out["pair"][1][1] is None
    assert (f.__name__, f.__doc__) == ("f", "What it does.")
    assert repr(f) == "<jit of f>"


def test_a_function_is_traced_once_per_signature() -> None:
    count = 0

    @jit
    def f(tree: Any) -> Any:
        nonlocal count
        count += 1
        return add(tree["x"], 1)

    calls: list[Any] = [
        NUMBERS,
        NUMBERS + 1,
        from_numpy(NUMBERS),
        NUMBERS[0],
        NUMBERS.astype(np.int32),
        device_put(NUMBERS, named("data")),
        device_put(NUMBERS + 1, named("data")),
        device_put(NUMBERS, named("model")),
        1,
        2,
    ]
    counts = []
    for x in calls:
        f({"x": x})
        counts.append(count)
    assert counts == [1, 1, 1, 2, 3, 4, 4, 5, 6, 6]
    with enable_x64():
        f({"x": NUMBERS})
    assert count == 7
    f.clear_cache()
    f({"x": NUMBERS})
    assert count == 8


def test_static_arguments_are_passed_unchanged() -> None:
    @partial(jit, static_argnames=("times", "mode"))
    def f(x: Any, times: int, *, mode: str = "up") -> Any:
        for _ in range(times):
            x = add(x, 1.0 if mode == "up" else -1.0)
        return x

    np.testing.assert_array_equal(f(NUMBERS, 3), NUMBERS + 3)
    np.testing.assert_array_equal(f(NUMBERS, times=2, mode="down"), NUMBERS - 2)


@pytest.mark.parametrize(
    ("options", "args", "keywords", "static"),
    [
        ({"static_argnums": 1}, (2,), {"y": 3}, "y"),
        ({"static_argnames": "y"}, (2, 3), {}, "y"),
        ({"static_argnums": 1, "static_argnames": ()}, (2, 3), {}, "y"),
        ({"static_argnums": 1, "static_argnames": ()}, (2,), {"y": 3}, ""),
        ({"static_argnums": (), "static_argnames": "y"}, (2, 3), {}, ""),
        ({"static_argnums": 1, "static_argnames": "x"}, (2,), {"y": 3}, ""),
        ({"static_argnums": 1, "static_argnames": "x"}, (), {"x": 2, "y": 3}, "x"),
    ],
)
def test_positions_and_names_of_static_arguments_may_differ(
    options: dict[str, Any], args: tuple[int, ...], keywords: dict[str, int], static: str
) -> None:
    def f(x: Any, y: Any) -> int:
        assert isinstance(x, Tracer) == ("x" not in static)
        assert isinstance(y, Tracer) == ("y" not in static)
        return 1

    assert jit(f, **options)(*args, **keywords) == 1


def test_negative_positions_count_from_the_last_argument_of_a_call() -> None:
    seen = []

    def f(x: Any, *args: Any) -> Any:
        seen.append([isinstance(each, Tracer) for each in (x, *args)])
        return add(x, args[0])

    last = jit(f, static_argnums=-1)
    for args in ((NUMBERS, 2), (NUMBERS, NUMBERS, 2), (NUMBERS, NUMBERS, 3), (NUMBERS, 2)):
        np.testing.assert_array_equal(last(*args), NUMBERS + args[1])
    assert seen == [[True, False], [True, True, False], [True, True, False]]
    with pytest.raises(ArgumentError) as error:
        jit(f, static_argnums=(-2, 0))(2)
    assert first_line(error) == (
        "argument -2 of f is listed by number, and the call has 1 positional argument; negative "
        "numbers count from the last one"
    )


def test_negative_positions_of_donated_arguments_count_from_the_last_one() -> None:
    def f(x: Any, *args: Any) -> Any:
        return tuple(add(each, 1.0) for each in (x, *args))

    for count in (2, 3):
        arrays = [from_numpy(NUMBERS) for _ in range(count)]
        jit(f, donate_argnums=-1)(*arrays)
        assert [x.is_deleted() for x in arrays] == [False] * (count - 1) + [True]
    with pytest.raises(ArgumentError) as error:
        jit(f, static_argnums=1, donate_argnums=-1)(NUMBERS, 2)
    assert first_line(error) == "argument 1 of f is both static and donated; choose one"


def test_options_may_be_passed_with_or_without_the_function() -> None:
    @jit(static_argnames=["n"])
    def f(x: Any, n: int) -> Any:
        return add(x, n)

    np.testing.assert_array_equal(f(NUMBERS, n=2), NUMBERS + 2)
    np.testing.assert_array_equal(jit(lambda x, n: add(x, n), static_argnums=-1)(NUMBERS, 2),
                                  NUMBERS + 2)  # fmt: skip


def test_methods_may_be_jitted() -> None:
    class Model:
        def __init__(self, w: float) -> None:
            self.w = w

        @partial(jit, static_argnums=0)
        def call(self, x: Any) -> Any:
            return add(x, self.w)

    np.testing.assert_array_equal(Model(2.0).call(NUMBERS), NUMBERS + 2)


def test_jit_inside_jit_is_one_program() -> None:
    @jit
    def inner(x: Any) -> Any:
        y = add(x, x)
        return y

    @jit
    def outer(x: Any) -> Any:
        return inner(inner(x))

    np.testing.assert_array_equal(outer(NUMBERS), NUMBERS * 4)
    assert "%y.1 = add(%y, %y)" in outer.lower(NUMBERS).as_text()


def test_results_have_propagated_shardings() -> None:
    x, w = device_put(NUMBERS, named("data")), device_put(NUMBERS.T, named(None, "model"))
    y = jit(dot)(x, w)
    assert y.sharding == named("data", "model")
    np.testing.assert_allclose(y, NUMBERS @ NUMBERS.T)
    assert y.committed


def test_uncommitted_arguments_run_on_the_default_device() -> None:
    y = jit(dot)(NUMBERS, from_numpy(NUMBERS.T))
    assert y.sharding == SingleDeviceSharding(devices()[0])
    assert not y.committed


def test_uncommitted_arguments_move_to_committed_devices() -> None:
    x = device_put(NUMBERS, named("data"))
    y = jit(add)(x, from_numpy(NUMBERS))
    assert y.sharding == named("data")
    np.testing.assert_array_equal(y, NUMBERS * 2)


def test_a_constraint_selects_the_mesh() -> None:
    @jit
    def f(x: Any) -> Any:
        return constrain(add(x, 1), named("data", "model"))

    y = f(NUMBERS)
    assert y.sharding == named("data", "model")
    np.testing.assert_array_equal(y, NUMBERS + 1)


def test_one_program_may_have_positional_shardings_of_several_shapes() -> None:
    sharding = PositionalSharding(devices())

    @jit
    def f(x: Any) -> Any:
        x = add(x, 1)
        return constrain(x, sharding.reshape(2, 4))

    x = device_put(NUMBERS, sharding.reshape(4, 2))
    y = f(x)
    assert y.sharding.is_equivalent_to(sharding.reshape(2, 4), 2)
    np.testing.assert_array_equal(y, NUMBERS + 1)
    assert jit(lambda x: constrain(x, sharding.replicate()))(x).is_fully_replicated


def test_in_shardings_and_out_shardings_place_arrays() -> None:
    f = jit(lambda x, y: (add(x, y), x), in_shardings=(named("data"), None),
            out_shardings=(named("model"), named()))  # fmt: skip
    total, x = f(NUMBERS, NUMBERS)
    assert (total.sharding, x.sharding) == (named("model"), named())
    np.testing.assert_array_equal(total, NUMBERS * 2)
    placed = device_put(NUMBERS, named("data"))
    np.testing.assert_array_equal(f(placed, 1)[0], NUMBERS + 1)


def test_one_sharding_applies_to_all_arguments() -> None:
    compiled = jit(lambda a, b: add(a, b["x"]), in_shardings=named("data")).lower(
        NUMBERS, {"x": NUMBERS}
    ).compile()  # fmt: skip
    assert compiled.input_shardings == ((named("data"), {"x": named("data")}), {})


def test_specs_refer_to_the_entered_mesh() -> None:
    f = jit(lambda x: add(x, 1), out_shardings=P("model"))
    with MESH:
        assert f(NUMBERS).sharding == named("model")
    with pytest.raises(
        ArgumentError, match=r"out_shardings of lambda has .* which names no devices"
    ):
        f(NUMBERS)


def test_a_copy_may_be_donated() -> None:
    x = jnp.ones(3)
    add_one = jit(lambda x: x + 1, donate_argnums=0)
    for made in (jnp.array(x), jnp.array(x, copy=True), jnp.copy(x)):
        assert made is not x
        assert (add_one(made) == 2).all()
        assert made.is_deleted()
        assert (x == 1).all()


def test_donated_arrays_are_deleted() -> None:
    f = jit(lambda x, y: add(x, y["y"]), donate_argnums=(0,))
    x, y = from_numpy(NUMBERS), from_numpy(NUMBERS)
    np.testing.assert_array_equal(f(x, {"y": y}), NUMBERS * 2)
    with pytest.raises(DeletedArrayError, match=r"has been donated to lambda at .*test_jit.py:"):
        np.asarray(x)
    np.testing.assert_array_equal(y, NUMBERS)
    with pytest.raises(DeletedArrayError):
        f(x, {"y": y})


def test_a_lowered_program_shows_every_stage() -> None:
    @jit
    def f(x: Any, w: Any) -> Any:
        h = dot(x, w)
        return h

    x = ShapeDtypeStruct((8, 4), np.float32, sharding=named("data"))
    w = ShapeDtypeStruct((4, 6), np.float32, sharding=named(None, "model"))
    lowered = f.lower(x, w)
    assert (
        lowered.as_text()
        == """\
mesh @mesh = [data=4, model=2]

func @f(
  %x: f32[8@data, 4@-],
  %w: f32[4@-, 6@model],
) -> (f32[8, 6]) {
  %h = dot(%x, %w, dims="bi,ih->bh") : f32[8, 6]
  return %h
}
"""
    )
    assert '%h = dot(%x, %w, dims="bi,ih->bh") : f32[8@data, 6@model]' in lowered.as_text(
        stage="propagate"
    )
    assert 'loc("' in lowered.as_text(locations=True)
    with pytest.raises(PipelineError, match="has no pass called 'propogate'"):
        lowered.as_text(stage="propogate")
    assert lowered.out_info == ShapeDtypeStruct((8, 6), np.float32)
    compiled = lowered.compile()
    assert "spmd func @f" in compiled.as_text()
    with pytest.raises(AttributeError) as caught:
        compiled.coverage()  # type: ignore[attr-defined]
    assert str(caught.value) == (
        "'Compiled' object has no attribute 'coverage'; use .lowered.coverage of this object"
    )
    with pytest.raises(AttributeError) as caught:
        compiled.covrage()  # type: ignore[attr-defined]
    assert str(caught.value) == "'Compiled' object has no attribute 'covrage'"
    with pytest.raises(AttributeError) as caught:
        compiled._global_arrays()  # type: ignore[attr-defined]
    assert str(caught.value) == "'Compiled' object has no attribute '_global_arrays'"


def test_a_compiled_program_knows_its_shardings() -> None:
    x = device_put(NUMBERS, named("data"))
    compiled = jit(lambda x, y: {"sum": add(x, y)}).lower(x, y=NUMBERS).compile()
    assert compiled.input_shardings == ((named("data"),), {"y": named("data")})
    assert compiled.output_shardings == {"sum": named("data")}
    np.testing.assert_array_equal(compiled(x, y=NUMBERS)["sum"], NUMBERS * 2)
    made = ShapeDtypeStruct((8, 4), np.float32, sharding=named("data"))
    assert compiled.out_info == {"sum": made}
    with pytest.raises(ArgumentError) as caught:
        compiled(NUMBERS[:4], y=NUMBERS)
    assert str(caught.value).startswith(
        "argument x of lambda is f32[4, 4], and it was compiled for f32[8, 4] placed as "
        "NamedSharding("
    )
    with pytest.raises(ArgumentError, match=r"lambda was compiled for arguments .*, and called wi"):
        compiled(x, NUMBERS)


def test_programs_compile_for_devices_that_this_machine_lacks() -> None:
    from shardir.frontend.shardings.devices import virtual_devices

    mesh = make_mesh((16, 4), ("data", "model"), devices=virtual_devices(64))
    x = ShapeDtypeStruct((64, 64), np.float32, sharding=NamedSharding(mesh, P("data", "model")))
    text = jit(lambda x: add(x, 1)).lower(x).compile().as_text()
    assert "f32[4, 16] of f32[64@data, 64@model]" in text


def test_eval_shape_does_not_execute() -> None:
    out = jit(lambda x: {"y": dot(x, x)}).eval_shape(ShapeDtypeStruct((4, 4), "float32"))
    assert out == {"y": ShapeDtypeStruct((4, 4), "float32")}


def test_many_leaves() -> None:
    params = [{"w": from_numpy(NUMBERS), "b": from_numpy(NUMBERS[0])} for _ in range(20)]
    updated = jit(lambda tree: [{"w": add(p["w"], 1), "b": p["b"]} for p in tree])(params)
    assert isinstance(updated[19]["w"], Array)
    np.testing.assert_array_equal(updated[19]["w"], NUMBERS + 1)


def test_result_shardings_use_the_meshes_of_the_user() -> None:
    for sharding in (named("data", None), named(None, ("data", "model")), named(None, None)):
        x = device_put(NUMBERS.repeat(2, 1), sharding)
        assert jit(lambda x: add(x, 1))(x).sharding == sharding
    mesh = make_mesh((2, 4), ("rows", "columns"))
    x = device_put(NUMBERS, NamedSharding(mesh, P("rows")))
    y = device_put(NUMBERS, named(None, "data"))
    first, second = jit(lambda x, y: (add(x, 1), add(y, 1)))(x, y)
    assert (first.sharding, second.sharding) == (x.sharding, y.sharding)


def test_an_indivisible_result_is_replicated() -> None:
    y = jit(lambda x: constrain(add(x, 1), named("data")))(NUMBERS[:6])
    assert y.is_fully_replicated
    np.testing.assert_array_equal(y, NUMBERS[:6] + 1)


def test_empty_arrays_and_scalars_run_on_many_devices() -> None:
    x = device_put(np.zeros((0, 4), np.float32), named("data"))
    y = jit(lambda x, n: (add(x, 1), add(n, n)))(x, device_put(np.float32(2), named()))
    assert y[0].shape == (0, 4)
    assert float(y[1]) == 4


def test_the_dump_setting_writes_every_stage(tmp_path: Path) -> None:
    x = device_put(NUMBERS, named("data"))
    with config(dump_dir=tmp_path, verify=True):
        f = jit(lambda x: add(x, 1))
        f(x)
        f(x)
    files = sorted(path.name for path in (tmp_path / "lambda").iterdir())
    steps = Pipeline.parse(DEFAULT_PIPELINE).passes
    stages = ["traced", *(step.name for step in steps)]
    assert files == [f"{number:02}-{stage}.ir" for number, stage in enumerate(stages)]
    assert "8@data" in (tmp_path / "lambda" / "00-traced.ir").read_text("utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["lambda"]


def test_cotangents_of_integers_are_results_of_each_call() -> None:
    gradients = sd.jit(sd.grad(lambda n, x: (n * x).sum(), argnums=(0, 1), allow_int=True))
    n, x = np.arange(3), np.ones(3, np.float32)
    for _ in range(3):
        none, cotangent = gradients(n, x)
        assert none.dtype == sd.float0
        np.testing.assert_array_equal(cotangent, n)


@pytest.mark.parametrize(
    ("result", "place"),
    [("a", ""), ((1.0, "a"), " at result[1]"), ({"k": ["a"]}, " at result['k'][0]")],
)
def test_a_result_that_is_not_an_array_is_an_error(result: Any, place: str) -> None:
    assert_raises_exactly(
        lambda: jit(lambda x: result)(1.0),
        NotAnArrayError,
        f"lambda returned 'a' of type str{place}, which is not an array; return arrays, numbers "
        "and containers of them only",
    )


def test_the_profile_of_a_report_is_a_profile() -> None:
    compiled: Any = jit(lambda x: x + 1).lower(1.0).compile()
    assert_raises_exactly(
        lambda: compiled.report(profile=3),
        ArgumentError,
        "the profile of a report is a result of shardir.profile, not 3",
    )
