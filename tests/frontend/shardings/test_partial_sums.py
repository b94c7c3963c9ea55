"""Arrays with unreduced axes: each device holds a partial sum, and the value is their total."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.frontend.dispatch.programs import compilation
from shardir.frontend.errors import ShardingError, ShardingTypeError
from shardir.sharding import AxisType, NamedSharding, PartitionSpec as P, reshard, use_mesh
from tests.frontend.shardings.explicit_programs import make_explicit_mesh

ROWS = np.arange(32, dtype=np.float32).reshape(8, 4)


@pytest.fixture(autouse=True)
def mesh() -> Iterator[sd.Mesh]:
    """A mesh with the Explicit axes x=4 and y=2."""
    mesh = make_explicit_mesh()
    with use_mesh(mesh):
        yield mesh


@pytest.fixture(params=["cpu", "numpy"])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the backend: compiled code for all devices together, or NumPy for each device."""
    if request.param == "numpy":
        monkeypatch.setattr(compilation, "is_available", lambda: False)
    return str(request.param)


def shards_of(array: sd.Array) -> list[Any]:
    return [np.asarray(shard.data) for shard in array.addressable_shards]


def total_of(array: sd.Array) -> Any:
    """Return the value of a replicated result that the shards of the devices have along x."""
    return sum(shard for shard in shards_of(array)[::2])


SPECS = [
    (P(), P(unreduced={"x"}), "float32[8,4]{U:x}"),
    (P("x"), P(unreduced={"x"}), "float32[8,4]{U:x}"),
    (P(None, "y"), P(None, "y", unreduced={"x"}), "float32[8,4@y]{U:x}"),
    (P("x", "y"), P("x", unreduced={"y"}), "float32[8@x,4]{U:y}"),
    (P(("x", "y")), P(unreduced={"x", "y"}), "float32[8,4]{U:(x,y)}"),
    (P(reduced={"y"}), P("y", unreduced={"x"}), "float32[8@y,4]{U:x}"),
]


@pytest.mark.parametrize(("spec", "unreduced", "type"), SPECS)
@pytest.mark.parametrize("move", [reshard, sd.device_put], ids=lambda each: each.__name__)
def test_an_array_becomes_unreduced_and_back(
    move: Callable[..., Any], spec: Any, unreduced: Any, type: str
) -> None:
    array = reshard(ROWS, spec)
    pending = move(array, unreduced)
    assert str(sd.typeof(pending)) == type
    np.testing.assert_array_equal(np.asarray(move(pending, spec)), ROWS)


def test_types_state_axes_of_size_1() -> None:
    mesh = sd.make_mesh((4, 1), ("x", "z"), axis_types=(AxisType.Explicit,) * 2)
    seen: list[str] = []

    def run(a: Any) -> Any:
        made = [
            reshard(a, P("z")), reshard(a, P(("x", "z"))), reshard(a, P("x", "z")).T,
            reshard(a, P(unreduced={"z"})), reshard(a, P("x", unreduced={"z"})),
            reshard(a, P(unreduced={"x", "z"})), reshard(a, P(reduced={"z"})),
        ]  # fmt: skip
        seen.extend(str(sd.typeof(each)) for each in made)
        return made

    with use_mesh(mesh):
        made = sd.jit(run)(reshard(ROWS, P("x")))
        assert seen == [
            "float32[8@z,4]", "float32[8@(x,z),4]", "float32[4@z,8@x]", "float32[8,4]{U:z}",
            "float32[8@x,4]{U:z}", "float32[8,4]{U:(x,z)}", "float32[8,4]{R:z}",
        ]  # fmt: skip
        for i, each in enumerate(made):
            assert str(sd.typeof(each)) == seen[i]
            expected = ROWS.T if i == 2 else ROWS
            np.testing.assert_array_equal(np.asarray(reshard(each, P())), expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "int32", "complex64"])
def test_the_first_device_holds_the_value_that_is_placed(dtype: str, executor: str) -> None:
    numbers = np.array([1, -2, 0, 100]).astype(getattr(ml_dtypes, dtype, dtype))
    placed = reshard(numbers, P(unreduced={"x"}))
    for i, shard in enumerate(shards_of(placed)):
        np.testing.assert_array_equal(shard, numbers * 0 if i >= 2 else numbers)
    again = sd.jit(lambda a: a)(placed)
    assert again.sharding == placed.sharding
    np.testing.assert_array_equal(np.asarray(reshard(again, P())), numbers)


def product(a: Any, b: Any) -> Any:
    return snp.dot(a, b, out_sharding=P("y", None, unreduced={"x"}))


def test_a_jitted_function_returns_and_takes_partial_sums(executor: str, mesh: sd.Mesh) -> None:
    a, b = reshard(ROWS.T, P("y", "x")), reshard(ROWS, P("x"))
    compiled = sd.jit(product).lower(a, b).compile()
    assert not compiled.collectives()
    pending = compiled(a, b)
    assert pending.sharding == NamedSharding(mesh, P("y", None, unreduced={"x"}))
    assert pending.sharding.shard_shape(pending.shape) == (2, 4)
    gather = sd.jit(lambda c: reshard(c + c, P("y")))
    again = gather.lower(pending).compile()
    assert [each.kind for each in again.collectives()] == ["all-reduce"]
    np.testing.assert_array_equal(np.asarray(gather(pending)), 2 * (ROWS.T @ ROWS))
    np.testing.assert_array_equal(np.asarray(reshard(pending, P())), ROWS.T @ ROWS)
    np.testing.assert_array_equal(total_of(pending)[:2], (ROWS.T @ ROWS)[:2])
    scattered = sd.jit(lambda c: reshard(c, P("y", "x"))).lower(pending).compile()
    assert [each.kind for each in scattered.collectives()] == ["reduce-scatter"]


def test_numpy_keeps_the_partial_sum_of_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "is_available", lambda: False)
    pending = sd.jit(product)(reshard(ROWS.T, P("y", "x")), reshard(ROWS, P("x")))
    for i, shard in enumerate(shards_of(pending)):
        part = ROWS[2 * (i // 2) : 2 * (i // 2) + 2]
        np.testing.assert_array_equal(shard, (part.T @ part)[2 * (i % 2) : 2 * (i % 2) + 2])


def test_requested_shardings_of_jit_have_unreduced_axes(executor: str, mesh: sd.Mesh) -> None:
    sharding = NamedSharding(mesh, P(None, None, unreduced={"y"}))
    made = sd.jit(lambda a: a, out_shardings=sharding)(reshard(ROWS, P("x")))
    assert made.sharding == sharding
    np.testing.assert_array_equal(np.asarray(reshard(made, P())), ROWS)
    made = sd.jit(lambda a: reshard(a, P()) ** 2, in_shardings=sharding)(ROWS)
    np.testing.assert_array_equal(np.asarray(made), ROWS**2)


def test_captured_and_donated_partial_sums(executor: str) -> None:
    pending = reshard(ROWS, P(unreduced={"x"}))
    captured = sd.jit(lambda: pending + pending)()
    np.testing.assert_array_equal(np.asarray(reshard(captured, P("x"))), ROWS * 2)
    donated = sd.jit(lambda a: a + a, donate_argnums=0)(captured)
    np.testing.assert_array_equal(np.asarray(reshard(donated, P("x"))), 4 * ROWS)


LINEAR = [
    (lambda a: -a, "neg"),
    (lambda a: a - a[::-1], "sub"),
    (lambda a: a / 2, "div"),
    (lambda a: a @ snp.ones((4, 2)), "dot"),
    (lambda a: snp.cumsum(a, 1), "cumsum"),
    (lambda a: sd.lax.dynamic_slice(a, (snp.int32(1), 0), (2, 4)), "dynamic_slice"),
]


@pytest.mark.parametrize(("fun", "name"), LINEAR)
def test_strict_mode_refuses_linear_operations_without_a_rule_in_jax(
    fun: Callable[[Any], Any], name: str, executor: str
) -> None:
    pending = reshard(ROWS, P(unreduced={"x"}))
    for run in (fun, sd.jit(fun)):
        with pytest.raises(ShardingTypeError) as caught:
            run(pending)
        assert str(caught.value).partition("\n")[0] in (
            f"operand 0 of {name}, float32[8,4]{{U:x}}, holds partial sums over 'x', and {name} "
            "does not accept them in strict mode; reshard it first (sharding.reshard)",
            "operand 0 of reverse, float32[8,4]{U:x}, holds partial sums over 'x', and reverse "
            "does not accept them in strict mode; reshard it first (sharding.reshard)",
        )
    with sd.config(explicit_sharding="lenient"):
        made = sd.jit(fun)(pending)
    assert made.sharding.spec.unreduced == {"x"}
    expected = np.asarray(fun(reshard(ROWS, P())))
    np.testing.assert_array_equal(np.asarray(reshard(made, P())), expected)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("axes", [(0,), (0, 1)])
def test_a_sum_may_complete_the_partial_sums_of_its_operand(
    axes: tuple[int, ...], dtype: str, executor: str
) -> None:
    numbers = ROWS.astype(dtype)
    a, b = reshard(numbers, P("x", "y")), reshard(numbers.T, P("y", None))

    def run(a: Any, b: Any) -> list[Any]:
        pending = snp.dot(a, b, out_sharding=P("x", unreduced={"y"}))
        return [
            lax.reduce_sum(pending, axes, out_sharding=P(unreduced=unreduced))
            for unreduced in ({"x"}, {"x", "y"}, {"y"})
        ]

    made = sd.jit(run)(a, b)
    expected = (numbers @ numbers.T).sum(axes)
    for each, unreduced in zip(made, ({"x"}, {"x", "y"}, {"y"}), strict=True):
        assert each.sharding.spec.unreduced == unreduced
        np.testing.assert_array_equal(np.asarray(reshard(each, P())), expected)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int4"])
def test_sums_of_integers_are_unreduced(dtype: str, executor: str) -> None:
    numbers = (np.arange(32).reshape(8, 4) * 9 - 100).astype(getattr(ml_dtypes, dtype, dtype))
    factor = reshard(numbers[0], P(reduced={"x"}))
    total = numbers.sum(0, dtype=numbers.dtype)  # It wraps around.

    def run(a: Any, factor: Any) -> list[Any]:
        unreduced = lax.reduce_sum(a, (0,), out_sharding=P("y", unreduced={"x"}))
        assert str(sd.typeof(unreduced)) == f"{dtype}[4@y]{{U:x}}"
        made = [
            unreduced + unreduced,
            unreduced * reshard(factor, P("y", reduced={"x"})),
            snp.where(True, unreduced, unreduced).reshape(2, 2),
            snp.concatenate([unreduced[:2], unreduced]),
            snp.broadcast_to(unreduced, (2, 4)),
            lax.dynamic_update_slice(unreduced, unreduced, (snp.int32(0),)),
            lax.reduce_sum(unreduced, (0,)),
        ]
        assert all(sd.typeof(each).sharding.spec.unreduced == {"x"} for each in made)
        return [reshard(each, P()) for each in made]

    made = sd.jit(run)(reshard(numbers, P("x", "y")), factor)
    expected = [
        total + total, total * numbers[0], total.reshape(2, 2),
        np.concatenate([total[:2], total]), np.broadcast_to(total, (2, 4)), total,
        total.sum(dtype=total.dtype),
    ]  # fmt: skip
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


def test_only_conversions_to_fewer_bits_keep_sums_of_integers_unreduced(executor: str) -> None:
    numbers = np.arange(32, dtype=np.int32).reshape(8, 4) * 1000
    pending = reshard(numbers, P(unreduced={"x"}))
    narrow = sd.jit(lambda a: a.astype("uint8"))(pending)
    assert str(sd.typeof(narrow)) == "uint8[8,4]{U:x}"
    np.testing.assert_array_equal(np.asarray(reshard(narrow, P())), numbers.astype(np.uint8))
    for dtype in ("int32", "float32"):
        with pytest.raises(ShardingTypeError) as caught:
            sd.jit(lambda a, dtype=dtype: a.astype(dtype))(narrow)
        assert str(caught.value).startswith(
            "operand 0 of convert, uint8[8,4]{U:x}, holds partial sums over 'x', and convert is "
            "not linear in its unreduced operands alone; reshard it first (sharding.reshard)"
        )
    with sd.config(explicit_sharding="lenient"):
        np.testing.assert_array_equal(np.asarray(sd.jit(lambda a: a // 3)(pending)), numbers // 3)


def test_values_keep_unreduced_and_reduced_axes() -> None:
    both = reshard(ROWS, P(unreduced={"x"}, reduced={"y"}))
    assert str(sd.typeof(both.T)) == "float32[4,8]{U:x, R:y}"


def test_a_reshape_without_elements_has_no_reduced_axes() -> None:
    copied = reshard(ROWS[:0], P(reduced={"y"}))
    with pytest.raises(ShardingTypeError, match=r"float32\[0,4\]{R:y}, is sharded, and reshape "):
        copied.reshape(3, 0)
    with sd.config(explicit_sharding="lenient"):
        assert str(sd.typeof(copied.reshape(3, 0))) == "float32[3,0]"


def test_scalars_and_conditions_have_no_reduced_axes() -> None:
    copied = reshard(ROWS, P(reduced={"y"}))
    assert str(sd.typeof(lax.pad(copied, 0.0, [(1, 1, 0), (0, 0, 0)]))) == "float32[10,4]{R:y}"
    assert str(sd.typeof(lax.select(ROWS > 3, copied, copied))) == "float32[8,4]{R:y}"


def test_sums_over_different_axes_are_not_added() -> None:
    first, second = (reshard(ROWS, P(unreduced={axis})) for axis in "xy")
    with pytest.raises(ShardingTypeError) as caught:
        first + second
    assert str(caught.value).splitlines()[0] == (
        "operand 0 of add, float32[8,4]{U:x}, holds partial sums over 'x', and add is not linear "
        "in its unreduced operands alone; reshard it first (sharding.reshard)"
    )


def test_a_factor_of_an_unreduced_value_is_reduced(executor: str) -> None:
    pending = reshard(ROWS, P(unreduced={"x"}))
    for factor in (2, np.float32(2), reshard(ROWS, P()), reshard(ROWS, P(reduced={"y"}))):
        with pytest.raises(ShardingTypeError) as caught:
            sd.jit(lambda a, factor=factor: a * factor)(pending)
        text = str(caught.value).partition("\n")[0]
        assert text.startswith(
            "operand 0 of mul, float32[8,4]{U:x}, holds partial sums over 'x', and operand 1 of "
            "mul, float32[8,4]"
        )
        assert text.endswith(
            ", is not reduced over them, so its gradient would be a sum over devices; reshard it "
            "to a PartitionSpec with reduced={'x'}, or reshard the partial sums first "
            "(sharding.reshard)"
        )
    for value in (np.float32(2), ROWS):
        factor = reshard(value, P(reduced={"x"}))
        for run in (lambda a, b: a * b, lambda a, b: b * a):
            made = sd.jit(run)(pending, factor)
            assert str(sd.typeof(made)) == "float32[8,4]{U:x}"
            np.testing.assert_array_equal(np.asarray(reshard(made, P())), ROWS * value)


def test_a_result_of_an_operation_on_partial_sums_is_not_added_to_other_values() -> None:
    pending = reshard(ROWS, P(unreduced={"x"}))
    with pytest.raises(ShardingTypeError) as caught:
        sd.jit(lambda a: a.T + 1)(pending)
    assert str(caught.value).startswith(
        "operand 0 of add, float32[4,8]{U:x}, holds partial sums over 'x', and add is not linear "
        "in its unreduced operands alone; reshard it first (sharding.reshard)"
    )


@pytest.mark.parametrize(
    ("fun", "name"),
    [
        (lambda a: a * a, "mul"),
        (lambda a: a + 1, "add"),
        (snp.exp, "exp"),
        (lambda a: a.max(), "max"),
        (lambda a: a > 0, "gt"),
        (lambda a: a.astype("int32"), "convert"),
        (lambda a: sd.vmap(lambda row: row * row)(a), "mul"),
        (lambda a: sd.lax.fori_loop(0, 2, lambda _, c: c * c, a), "mul"),
    ],
)
def test_an_operation_that_is_not_linear_is_refused(fun: Callable[[Any], Any], name: str) -> None:
    pending = reshard(ROWS, P(unreduced={"x"}))
    for run in (fun, sd.jit(fun)):
        with pytest.raises(ShardingTypeError) as caught:
            run(pending)
        assert "holds partial sums over 'x'" in str(caught.value)
        assert f"and {name} is not linear in its unreduced operands alone" in str(caught.value)


@pytest.mark.parametrize(
    "read",
    [
        np.asarray,
        sd.device_get,
        pickle.dumps,
        snp.unique,
        lambda a: float(a[0, 0]),
        lambda a: a.tolist(),
        lambda a: a.storage,
        lambda a: np.from_dlpack(a),
    ],
)
def test_elements_are_not_read(read: Callable[[Any], Any]) -> None:
    pending = reshard(ROWS, P(unreduced={"x"}))
    with pytest.raises(ShardingError) as caught:
        read(pending)
    assert "the devices hold partial sums of this array of type f32" in str(caught.value)
    assert "add them with sharding.reshard before its elements are read" in str(caught.value)


def test_text_states_the_sharding(mesh: sd.Mesh) -> None:
    pending = reshard(ROWS, P(unreduced={"x"}))
    expected = f"Array(shape=(8, 4), dtype=float32, sharding={pending.sharding})"
    assert repr(pending) == str(pending) == f"{pending}" == expected
    assert not pending.is_fully_replicated
    weak = reshard(snp.asarray(1.0), P(unreduced={"x"}))
    assert repr(weak).startswith("Array(shape=(), dtype=float32, weak_type=True, sharding=")


def test_a_checkpoint_has_no_partial_sums(tmp_path: Path) -> None:
    pending = reshard(ROWS, P(unreduced={"x"}))
    with pytest.raises(ShardingError) as caught:
        sd.checkpoints.save(tmp_path / "step", {"a": pending})
    assert str(caught.value).startswith(
        f"the devices hold partial sums of an array with {pending.sharding}; add them with "
        "sharding.reshard before its elements are read or moved to another process"
    )


def test_shards_do_not_determine_partial_sums() -> None:
    pending = reshard(ROWS, P(unreduced={"x"}))
    message = (
        f"{pending.sharding}, and the elements of a shard do not determine its partial sums; "
        "place the total with device_put"
    )
    with pytest.raises(ShardingError) as caught:
        sd.make_array_from_callback(ROWS.shape, pending.sharding, lambda index: ROWS[index])
    assert message in str(caught.value)
    shards = [shard.data for shard in pending.addressable_shards]
    with pytest.raises(ShardingError) as caught:
        sd.make_array_from_single_device_arrays(ROWS.shape, pending.sharding, shards)
    assert message in str(caught.value)


def test_equivalent_shardings_have_the_same_unreduced_axes(mesh: sd.Mesh) -> None:
    pending = NamedSharding(mesh, P(unreduced={"x"}))
    other = NamedSharding(sd.Mesh(mesh.devices[::-1], ("x", "y"), mesh.axis_types), pending.spec)
    assert pending.is_equivalent_to(NamedSharding(mesh, P(None, unreduced={"x"})), 1)
    assert not pending.is_equivalent_to(NamedSharding(mesh, P(unreduced={"y"})), 1)
    assert not pending.is_equivalent_to(NamedSharding(mesh, P()), 1)
    assert not pending.is_equivalent_to(other, 1)


def test_a_program_of_several_processes_has_no_partial_sums_outside(
    mesh: sd.Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharding = NamedSharding(mesh, P(unreduced={"x"}))
    pending = reshard(ROWS, sharding)
    monkeypatch.setattr(NamedSharding, "is_fully_addressable", False)
    ending = (
        f"{sharding}: its devices belong to several processes, and partial sums of arrays must be "
        "in one; reshard the value inside of jit (sharding.reshard)"
    )
    with pytest.raises(ShardingError) as caught:
        sd.device_put(ROWS, sharding)
    assert f"device_put cannot make an array with {ending}" in str(caught.value)
    with pytest.raises(ShardingError) as caught:
        sd.jit(lambda a: a + a).lower(pending).compile()
    assert "partial sums of arrays must be in one" in str(caught.value)


def test_partial_sums_are_not_returned_on_a_mesh_with_auto_axes() -> None:
    mesh = sd.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
    with use_mesh(mesh), pytest.raises(ShardingTypeError) as caught:
        sd.jit(lambda a: reshard(a, P(unreduced={"x"})))(ROWS)
    assert str(caught.value).startswith(
        "lambda returns partial sums, P(None, None, unreduced={'x'}), on a mesh with "
        "axes of type Auto; reshard them first (sharding.reshard), or use a mesh of Explicit axes "
        "only"
    )


def test_compiled_nan_checks_read_the_total() -> None:
    pending = reshard(ROWS, P(unreduced={"x"}))
    with sd.config(debug_nans=True):
        made = sd.jit(lambda a: a + a)(pending)
    np.testing.assert_array_equal(np.asarray(reshard(made, P())), ROWS * 2)


def differentiations(fun: Callable[[Any], Any]) -> list[Callable[[Any], Any]]:
    """Return functions that compute the gradient of `fun`."""

    def pull_back(a: Any) -> Any:
        pullback: Callable[[float], tuple[Any]] = sd.vjp(fun, a)[1]
        return pullback(1.0)[0]

    return [sd.grad(fun), sd.jit(sd.grad(fun)), pull_back]


def squares(a: Any) -> Any:
    return snp.sum(reshard(a, P()) ** 2)


def test_the_gradient_of_an_unreduced_array_is_reduced(executor: str) -> None:
    pending = reshard(ROWS, P(unreduced={"x"}))
    for run in differentiations(squares):
        gradient = run(pending)
        assert str(sd.typeof(gradient)) == "float32[8,4]{R:x}"
        np.testing.assert_array_equal(np.asarray(gradient), 2 * ROWS)


def test_the_gradient_of_a_reduced_array_is_unreduced(executor: str) -> None:
    copies, batch = reshard(ROWS.T, P(reduced={"x"})), reshard(ROWS, P("x"))

    def loss(w: Any) -> Any:
        return snp.sum(batch @ w)

    expected = np.tile(ROWS.sum(0)[:, None], (1, 8))
    for run in differentiations(loss):
        gradient = run(copies)
        assert str(sd.typeof(gradient)) == "float32[4,8]{U:x}"
        np.testing.assert_array_equal(np.asarray(reshard(gradient, P())), expected)


def test_the_gradient_of_an_unused_reduced_array_is_unreduced() -> None:
    copies, cotangent = reshard(ROWS, P(reduced={"x"})), reshard(ROWS, P(unreduced={"x"}))
    _, pullback = sd.vjp(sd.jit(lambda a, b: b), copies, copies)
    for gradient, expected in zip(pullback(cotangent), (0 * ROWS, ROWS), strict=True):
        assert str(sd.typeof(gradient)) == "float32[8,4]{U:x}"
        np.testing.assert_array_equal(np.asarray(reshard(gradient, P())), expected)


IDS = np.array([[3, 0, 7], [1, 3, 3], [2, 6, 5], [3, 0, 1]])
COUNTS = np.bincount(IDS.ravel(), minlength=8)[:, None]


@pytest.mark.parametrize(
    ("fun", "type", "num_uses"),
    [
        (
            lambda w: w.at[reshard(IDS, P("x"))].get(out_sharding=P("x", reduced={"y"})),
            "float32[4@x,3,4]{R:y}",
            COUNTS,
        ),
        (
            lambda w: lax.broadcast_in_dim(
                w, (4, 8, 4), (1, 2), out_sharding=P("x", reduced={"y"})
            ),
            "float32[4@x,8,4]{R:y}",
            4,
        ),
    ],
    ids=["gather", "broadcast"],
)
def test_a_reduced_axis_may_shard_a_new_dimension(
    fun: Callable[[Any], Any], type: str, num_uses: Any, executor: str
) -> None:
    def loss(w: Any) -> Any:
        result = fun(w)
        assert str(sd.typeof(result)) == type
        return snp.sum(result**2)

    copies = reshard(ROWS, P(reduced={"x", "y"}))
    for run in differentiations(loss):
        gradient = run(copies)
        assert str(sd.typeof(gradient)) == "float32[8,4]{U:(x,y)}"
        expected = 2 * ROWS * num_uses
        np.testing.assert_array_equal(np.asarray(reshard(gradient, P())), expected)
    assert not sd.jit(fun).lower(copies).compile().collectives()


def test_lenient_types_complete_the_sums_that_out_sharding_does_not_state() -> None:
    def multiply(a: Any, b: Any) -> Any:
        pending = snp.dot(a, b, out_sharding=P(unreduced={"y"}))
        return snp.reshape(pending, (4, 16), out_sharding=P("x"))

    operands = reshard(np.ones((8, 8), "f"), P(None, "y")), reshard(np.ones((8, 8), "f"), P("y"))
    with pytest.raises(ShardingTypeError, match="has partial sums along 'y'; state these axes"):
        sd.jit(multiply)(*operands)
    with sd.config(explicit_sharding="lenient"):
        made = sd.jit(multiply)(*operands)
    assert made.sharding.spec == P("x", None)
    np.testing.assert_array_equal(made, np.full((4, 16), 8))


def test_types_state_no_sharding_without_axis_names() -> None:
    rows = sd.sharding.PositionalSharding(sd.devices()).reshape(8, 1)
    for word, fun in (
        ("out_sharding", lambda a: snp.dot(a, a.T, out_sharding=rows)),
        ("out_shardings of reshard", lambda a: reshard(a, rows)),
    ):
        with pytest.raises(ShardingError) as caught:
            sd.jit(fun)(ROWS)
        text = f"{word} has PositionalSharding([[{{CPU 0}}] [{{CPU 1}}] [{{CPU 2}}] ["
        assert str(caught.value).startswith(text)
        assert (
            str(caught.value)
            .partition("\n")[0]
            .endswith(
                ", which names no axis of the mesh; write NamedSharding(mesh, PartitionSpec(...))"
            )
        )
    assert reshard(ROWS, rows).sharding == rows


def test_a_reduced_axis_does_not_shard_a_dimension_of_the_operand() -> None:
    copies = reshard(ROWS, P(reduced={"x"}))
    for fun in (
        lambda w: snp.reshape(w, (4, 8), out_sharding=P("x")),
        lambda w: lax.broadcast_in_dim(w, (4, 8, 4), (1, 2), out_sharding=P(None, "x")),
        lambda w: w.at[IDS].get(out_sharding=P(None, None, "x")),
    ):
        with pytest.raises(ShardingTypeError) as caught:
            sd.jit(fun)(copies)
        assert "has copies whose gradients are summed along 'x'; state these axes" in str(
            caught.value
        )
