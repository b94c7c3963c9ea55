"""Functions of the namespaces run outside of traces as programs of one function."""

from functools import partial, wraps
from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir import ops
from shardir.frontend.argument_checks import parameter_names
from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.config import enable_x64
from shardir.frontend.dispatch import eager as eager_module, eager_call
from shardir.frontend.dispatch.eager import public
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import (
    ArgumentError,
    DeletedArrayError,
    IncompatibleDevicesError,
    LeakedTracerError,
    NotAnArrayError,
    NumberRangeError,
)
from shardir.frontend.shardings.devices import devices
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import P
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.tracing.operands import align, as_tracer
from shardir.frontend.tracing.parameters import UnhashableError, static_key, static_value
from shardir.frontend.tracing.trace import emit
from shardir.sharding import AxisType
from tests.error_assertions import assert_raises_exactly
from tests.native_tier import needs_native

MESH = make_mesh((4, 2), ("a", "b"))
NUMBERS = np.arange(32, dtype=np.float32).reshape(8, 4)
runs: list[str] = []


@public()
def plus(x: Any, y: Any) -> Any:
    """The sum."""
    runs.append("plus")
    x, y = align(x, y)
    return emit(ops.add, x, y, weak=x.weak_type)


@public(static=("dim",))
def total(x: Any, dim: Any = 0) -> Any:
    return emit(ops.sum_, as_tracer(x), dims=(dim,))


@public(static=("function",), cached=False)
def applied(function: Any, *xs: Any) -> Any:
    return function(*xs)


@public()
def both(pair: Any) -> Any:
    return {"sum": plus(pair[0], pair[1]), "first": pair[0], "none": None}


@pytest.mark.parametrize("number", [1.0, np.float32(1)], ids=["python", "numpy"])
@pytest.mark.parametrize("kind", [list, tuple])
def test_long_lists_of_numbers_are_errors(kind: Any, number: Any) -> None:
    assert_raises_exactly(
        lambda: plus(kind([number] * 1025), 1),
        NotAnArrayError,
        f"argument x of plus is a {kind.__name__} of 1025 numbers, and at most 1024 are accepted; "
        "make it one array with snp.array",
    )


@public()
def size_of(tree: Any, *others: Any) -> Any:
    return as_tracer(len(tree))


@pytest.mark.parametrize(
    "args",
    [
        ([1.0] * 600, (1.0,) * 600),
        ({str(i): 1.0 for i in range(1100)},),
        ([from_numpy(NUMBERS)] * 1100,),
        ([*[1.0] * 1100, from_numpy(NUMBERS)],),
    ],
    ids=["two lists", "a dict", "arrays", "an array among numbers"],
)
def test_other_containers_may_have_many_arrays(args: Any) -> None:
    assert size_of(*args).item() == len(args[0])


def test_a_call_makes_an_array() -> None:
    x = plus(NUMBERS, 1)
    assert isinstance(x, Array)
    assert not x.committed
    np.testing.assert_array_equal(x, NUMBERS + 1)
    assert plus.__doc__ == "The sum."


def test_python_scalars_stay_weakly_typed() -> None:
    assert plus(1, 2).weak_type
    assert plus(1, 2.5).dtype == np.float32
    assert not plus(from_numpy(np.float16(1)), 2.5).weak_type
    assert plus(from_numpy(np.float16(1)), 2.5).dtype == np.float16
    with enable_x64():
        assert plus(1, 2.5).dtype == np.float64


def test_a_function_is_traced_once_per_signature() -> None:
    plus(NUMBERS, NUMBERS)
    runs.clear()
    plus(NUMBERS + 1, NUMBERS)
    plus(NUMBERS, y=NUMBERS)
    plus(NUMBERS, y=NUMBERS)
    assert runs == ["plus"]


def test_equal_numbers_of_different_types_have_different_signatures() -> None:
    assert plus(NUMBERS, True).dtype == np.float32
    assert plus(np.int8(1), True).dtype == np.int8
    assert plus(np.int8(1), 1.0).dtype == np.float32
    keys = [static_key(x) for x in (1, 1.0, True, 0.0, -0.0)]
    assert len(set(keys)) == 5
    assert static_key((1, [2, slice(3)])) == static_key((1, [2, slice(3)]))
    for value in ({1, 2}, np.array([[]], object)):
        with pytest.raises(UnhashableError):
            static_key(value)


def test_a_static_argument_follows_from_its_key() -> None:
    for value in (1, [1, (2.5, "a")], slice(1, None), {"a": (-0.0,)}, None, int, -0.0):
        assert repr(static_value(static_key(value))) == repr(value)
    array = np.arange(6, dtype=np.int8).reshape(2, 3)
    made = static_value(static_key(array))
    assert made.dtype == np.int8
    np.testing.assert_array_equal(made, array)


def test_static_arguments_shape_the_program() -> None:
    assert total(NUMBERS, 1).shape == (8,)
    assert total(NUMBERS, dim=0).shape == (4,)
    with pytest.raises(ArgumentError, match=r"argument dim of total is \{1\}; it must be known"):
        total(NUMBERS, {1})


def test_containers_are_arguments_and_results() -> None:
    out = both((NUMBERS, 1.0))
    assert set(out) == {"sum", "first", "none"}
    np.testing.assert_array_equal(out["sum"], NUMBERS + 1)
    assert out["none"] is None


def test_function_arguments_are_traced_at_every_call() -> None:
    offset = 1.0

    def shift(x: Any) -> Any:
        return plus(x, offset)

    np.testing.assert_array_equal(applied(shift, NUMBERS), NUMBERS + 1)
    offset = 2.0
    np.testing.assert_array_equal(applied(shift, NUMBERS), NUMBERS + 2)
    table = from_numpy(NUMBERS)
    assert applied(lambda x: plus(x, table), NUMBERS)[1, 0].item() == 8
    table = device_put(NUMBERS * 10, NamedSharding(MESH, P("a")))
    result = applied(lambda x: plus(x, table), NUMBERS)
    np.testing.assert_array_equal(result, NUMBERS * 11)
    assert result.sharding == table.sharding


def test_calls_inside_a_trace_compute_nothing() -> None:
    made: list[Any] = []

    @jit
    def f(x: Any) -> Any:
        made.append(plus(1, 2))
        return plus(x, made[-1])

    np.testing.assert_array_equal(f(NUMBERS), NUMBERS + 3)
    with pytest.raises(LeakedTracerError, match="f has ended; return it from there"):
        plus(made[0], 1)


def test_computation_follows_placement() -> None:
    sharding = NamedSharding(MESH, P("a", "b"))
    x = device_put(NUMBERS, sharding)
    y = plus(x, 1)
    assert (y.sharding, y.committed) == (sharding, True)
    assert plus(x, NUMBERS).sharding == sharding
    assert plus(from_numpy(NUMBERS), x).sharding == sharding
    on_one = device_put(NUMBERS, devices()[3])
    assert plus(on_one, 1).device is devices()[3]


def test_an_error_names_conflicting_devices() -> None:
    x = device_put(NUMBERS, NamedSharding(make_mesh((4,), ("a",), devices=devices()[:4]), P("a")))
    y = device_put(NUMBERS, NamedSharding(make_mesh((4,), ("a",), devices=devices()[4:]), P("a")))
    with pytest.raises(IncompatibleDevicesError) as caught:
        plus(x, y)
    assert str(caught.value).startswith(
        "devices of all arrays of a computation should be the same: argument x of plus has device "
        "ids [0, 1, 2, 3] on platform CPU, and argument y of plus has device ids [4, 5, 6, 7] on "
        "platform CPU; move one to the devices of the other with device_put"
    )


def test_results_do_not_alias_writable_arguments() -> None:
    numbers = NUMBERS.copy()

    @public()
    def same(x: Any) -> Any:
        return x, emit(ops.transpose, x, perm=(1, 0))

    x, turned = same(numbers)
    numbers[:] = -1
    np.testing.assert_array_equal(x, NUMBERS)
    np.testing.assert_array_equal(turned, NUMBERS.T)


def test_out_of_range_numbers_are_errors() -> None:
    with pytest.raises(NumberRangeError, match=r"the number 1099511627776 does not fit into int32"):
        plus(NUMBERS.astype(np.int32), 2**40)
    # A float represents the number, in an eager call and in a program.
    np.testing.assert_array_equal(plus(NUMBERS, 2**40), np.float32(2**40) + NUMBERS)
    with pytest.raises(NumberRangeError, match="an integer of this size does not fit into f32"):
        jit(lambda x: plus(x, 10**400))(1.0)
    np.testing.assert_array_equal(plus(np.uint8(1), 255), 0)
    with pytest.raises(
        NumberRangeError, match=r"%x has the number 1099511627776, which does not fit"
    ):
        plus(np.array([1, 2**40]), 1)
    with enable_x64():
        assert plus(np.array([1, 2**40]), 1).tolist() == [2, 2**40 + 1]
    assert plus(np.array(1e300), 1).item() == np.inf


@public()
def last_part(parts: Any, *others: Any) -> Any:
    return as_tracer(parts[-1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: plus("text", 1), "argument x of plus is 'text' of type str"),
        (lambda x: plus(x, {"k": x}), "argument y of plus is {'k': f32[8, 4]} of type dict"),
        (lambda x: plus(x, y=(x, None)), "argument y of plus is (f32[8, 4], None) of type tuple"),
        (
            lambda x: last_part((1, x, [x, (x, {"k": x})])),
            "argument parts.2.1.1 of last_part is {'k': f32[8, 4]} of type dict",
        ),
        (
            lambda x: last_part([x, 2, {"k": [x]}], "text", x),
            "argument parts.2 of last_part is {'k': [f32[8, 4]]} of type dict",
        ),
    ],
)
def test_an_error_shows_the_argument_that_is_not_an_array(call: Any, message: str) -> None:
    way_out = "; make it one with snp.array" * (message.split()[-1] in ("list", "tuple"))
    assert_raises_exactly(
        lambda: call(from_numpy(NUMBERS)),
        NotAnArrayError,
        f"{message}, which is not an array{way_out}",
    )


def test_a_list_of_arrays_of_several_shapes_is_an_error() -> None:
    @public()
    def stacked(rows: Any) -> Any:
        return as_tracer(rows)

    assert_raises_exactly(
        lambda: stacked([from_numpy(NUMBERS), from_numpy(NUMBERS[0])]),
        NotAnArrayError,
        "a list of arrays of shapes (8, 4) and (4,) is not an array",
    )


def test_errors_name_the_function() -> None:
    def _double(x: Any) -> Any:
        return as_tracer(x) * 2

    functions: dict[str, Any] = {
        "double": public()(_double),
        "twice": public(name="twice")(_double),
    }
    for name, function in functions.items():
        assert_raises_exactly(
            partial(function, 3, out_sharding=None),
            ArgumentError,
            f"{name} takes (x): got an unexpected keyword argument 'out_sharding'",
        )
        assert float(function(3)) == 6


def test_static_arguments_of_functions_with_any_keywords() -> None:
    @public(static=("dim",))
    def total_of(x: Any, **attributes: Any) -> Any:
        return emit(ops.sum_, as_tracer(x), dims=(attributes["dim"],))

    assert total_of(NUMBERS, dim=1).shape == (8,)


def test_static_arguments_of_an_object_that_is_called() -> None:
    class Total:
        __name__ = "total"

        def __call__(self, x: Any, dim: int = 0) -> Any:
            return emit(ops.sum_, as_tracer(x), dims=(dim,))

    function: Any = Total()
    assert public(static=("dim",))(function)(NUMBERS, dim=1).shape == (8,)
    with pytest.raises(ValueError, match="total has no parameter 'axis' to be static"):
        public(static=("axis",))(function)


def test_only_parameters_are_static() -> None:
    with pytest.raises(ValueError, match="f has no parameter 'axis' to be static"):

        @public(static=("axis",))
        def f(x: Any) -> Any:
            return x


def test_parameters_are_those_of_the_signature() -> None:
    def plain(a: int, /, b: int, *rest: int, c: int = 0, **more: int) -> None:
        inner = a
        assert inner

    @wraps(plain)
    def wrapped(*args: Any, **options: Any) -> None: ...

    names, positional = ("a", "b", "c", "rest", "more"), ("a", "b")
    assert parameter_names(plain) == (names, positional, "rest")
    assert parameter_names(lambda x, *, y: x) == (("x", "y"), ("x",), "")
    in_order = ("a", "b", "rest", "c", "more")
    assert parameter_names(wrapped) == (in_order, positional, "rest")
    assert parameter_names(partial(plain, 1)) == (in_order[1:], ("b",), "rest")


def record_slow_path_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that records the names of the functions whose calls take the slow path."""
    called: list[str] = []

    def counted(eager: Any, args: Any, options: Any) -> Any:
        called.append(eager.name)
        return call_eagerly(eager, args, options)

    call_eagerly = eager_call.call_eagerly
    monkeypatch.setattr(eager_module, "call_eagerly", counted)
    return called


@needs_native
def test_calls_take_the_fast_path_from_the_second_on(monkeypatch: pytest.MonkeyPatch) -> None:
    @public(static=("dim",))
    def summed(pair: Any, dim: Any = 0, other: Any = None) -> Any:
        x = as_tracer(pair[0])
        found = emit(ops.sum_, x, dims=(int(dim),))
        return (found, emit(ops.neg, as_tracer(pair[1]))) if other is None else emit(ops.neg, x)

    slow = record_slow_path_calls(monkeypatch)
    x, y = from_numpy(NUMBERS), from_numpy(NUMBERS + 1)

    def check(dim: Any) -> None:
        made = summed((x, y), dim)
        np.testing.assert_array_equal(made[0], NUMBERS.sum(int(dim)))
        np.testing.assert_array_equal(made[1], -NUMBERS - 1)

    for dim in (0, 1, True, False, "1", np.int64(1), 1.0):
        for _ in range(3):
            check(dim)
    # Calls with NumPy scalars take the slow path.
    assert len(slow) == 6 + 3
    with enable_x64(True):
        for _ in range(3):
            check(0)
    assert len(slow) == 6 + 3 + 1
    # The entries of the earlier trace context are still there.
    for _ in range(2):
        check(0)
    assert len(slow) == 6 + 3 + 1
    assert summed((x, y), other=y, dim=1).shape == (8, 4)
    with make_mesh((2,), ("a",)):
        for _ in range(2):
            check(0)
    assert len(slow) == 6 + 3 + 3


def test_the_fast_path_distinguishes_keyword_arguments() -> None:
    @public()
    def difference(a: Any, b: Any) -> Any:
        return emit(ops.sub, as_tracer(a), as_tracer(b))

    x, y = from_numpy(NUMBERS), from_numpy(NUMBERS * 3)
    for _ in range(3):
        np.testing.assert_array_equal(difference(a=x, b=y), NUMBERS * -2)
        np.testing.assert_array_equal(difference(b=x, a=y), NUMBERS * 2)
        np.testing.assert_array_equal(difference(x, b=y), NUMBERS * -2)


def test_a_deleted_array_is_an_error_on_the_fast_path() -> None:
    x, y = from_numpy(NUMBERS), from_numpy(NUMBERS)
    for _ in range(3):
        plus(x, y)
    y.delete()
    with pytest.raises(DeletedArrayError):
        plus(x, y)


def test_a_function_of_the_user_is_traced_again_at_every_call() -> None:
    x, state = from_numpy(NUMBERS), [1.0]

    def scale(x: Any) -> Any:
        return x * state[0]

    for state[0] in (1.0, 2.0, 3.0, 4.0):
        np.testing.assert_array_equal(applied(scale, x), NUMBERS * state[0])
    assert applied(lambda xs: xs[-1] + 1, [1] * 1025) == 2


def test_out_sharding_states_the_sharding_of_the_result() -> None:
    mesh = make_mesh((4,), ("a",), axis_types=(AxisType.Explicit,))
    rows = NamedSharding(mesh, P("a", None))
    for _ in range(2):
        made = snp.reshape(NUMBERS, (4, 8), out_sharding=rows)
        assert made.sharding == rows
        np.testing.assert_array_equal(made, NUMBERS.reshape(4, 8))
