"""Control flow functions: results, emitted operations, and errors."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import shardir as sd
from shardir import testing
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import (
    ArgumentError,
    ControlFlowError,
    LeakedTracerError,
    NumberRangeError,
    TracedValueError,
)
from shardir.frontend.lax import api as lax
from shardir.frontend.numpy import api as snp
from shardir.frontend.pytree import tree
from tests.namespace import eagerly, ops, run, same, trace

X = np.arange(12, dtype=np.float32).reshape(4, 3)
ROW = np.array([1.0, 2.0, 3.0], np.float32)


class State(NamedTuple):
    total: Any
    count: Any


def both(fun: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a traced call, and check that an eager call has the same result."""
    traced = run(fun, *args)
    same(tree.leaves(eagerly(fun, *args)), tree.leaves(traced))
    return traced


def test_scan_returns_carry_and_stacked_outputs() -> None:
    total, sums = both(lambda x: lax.scan(lambda c, r: (c + r, c * 2), ROW * 0, x), X)
    same(total, X.sum(0))
    same(sums, 2 * np.concatenate([np.zeros((1, 3), "f"), np.cumsum(X, 0)[:-1]]))


def test_scan_backwards() -> None:
    total, sums = both(lambda x: lax.scan(lambda c, r: (c + r, c + r), ROW * 0, x, reverse=True), X)
    same(total, X.sum(0))
    same(sums, np.cumsum(X[::-1], 0)[::-1])


def test_scan_without_xs_or_ys() -> None:
    last, none = both(lambda: lax.scan(lambda c, _: (c * 2, None), 1, length=5))
    assert (int(last), none) == (32, None)
    _, squares = both(lambda: lax.scan(lambda c, _: (c + 1, c * c), 0, None, length=4))
    assert squares.tolist() == [0, 1, 4, 9]
    _, same_xs = both(lambda x: lax.scan(lambda c, r: (c, r), None, x), X)
    same(same_xs, X)
    carry, empty = both(lambda x: lax.scan(lambda c, r: (c + r, r), ROW, x), X[:0])
    same(carry, ROW)
    assert empty.shape == (0, 3)


def test_scan_accepts_containers() -> None:
    def step(state: State, xs: dict[str, Any]) -> tuple[State, list[Any]]:
        return State(state.total + xs["a"], state.count + 1), [xs["b"][0], state]

    state, (b, states) = both(
        lambda a, b: lax.scan(step, State(0.0, 0), {"a": a, "b": (b,)}), X[:, 0], X
    )
    assert isinstance(state, State)
    same(state.total, X[:, 0].sum())
    assert state.count == 4
    same(b, X)
    assert states.count.tolist() == [0, 1, 2, 3]


def test_bodies_capture_outer_values() -> None:
    def nested(x: Any, w: Any) -> Any:
        doubled = w * 2

        def outer(carry: Any, row: Any) -> Any:
            def inner(i: int, value: Any) -> Any:
                return value + doubled * row

            return lax.fori_loop(0, 2, inner, carry), carry

        return lax.scan(outer, w, x)

    total, _ = both(nested, X, ROW)
    same(total, ROW + 4 * ROW * X.sum(0))


def test_captured_arrays_are_parameters() -> None:
    weights = from_numpy(ROW)
    big = from_numpy(np.arange(300, dtype=np.float32))

    def body(carry: Any, row: Any) -> Any:
        return carry + row * weights + big[0], None

    same(np.asarray(jit(lambda x: lax.scan(body, weights, x)[0])(X)), ROW + (X * ROW).sum(0))
    same(np.asarray(lax.scan(body, weights, X)[0]), ROW + (X * ROW).sum(0))


def test_python_scalar_carries_have_the_dtype_of_the_body() -> None:
    """As in JAX, the carry has the dtype of the body's result."""
    last, _ = both(lambda x: lax.scan(lambda c, r: (c + r.sum(), None), 0, x), X)
    same(last, X.sum())
    last = both(lambda x: lax.fori_loop(0, 3, lambda i, c: c * x[0], 1), ROW)
    same(last, np.float32(1))
    half = both(lambda x: lax.while_loop(lambda c: c < 3, lambda c: c + x, 0), np.float16(1)
                .reshape(()))  # fmt: skip
    assert half.dtype == np.float16
    weak = lax.scan(lambda c, _: (c * 2.0, None), 1.5, length=2)[0]
    assert weak.weak_type
    fixed, _ = both(lambda x: lax.scan(lambda c, _: (2.0, None), x, length=1), np.float16(1)
                    .reshape(()))  # fmt: skip
    assert fixed.dtype == np.float16


def test_a_carry_with_the_dtype_of_the_body_remains_weakly_typed_in_the_body() -> None:
    """As in JAX, only another dtype traces the body again; results have the types of the body."""
    half = snp.asarray(np.float16(2))
    ones = snp.ones(3)
    last, ys = lax.scan(lambda c, x: (c + x, (c, c * half)), 0.0, ones)
    assert (last.dtype, last.weak_type) == (np.float32, False)
    assert (ys[0].dtype, ys[0].weak_type) == (np.float32, True)
    assert (ys[1].dtype, ys[1].weak_type) == (np.float16, False)
    same(np.asarray(ys[1]), np.array([0, 2, 4], np.float16))
    last, y = lax.scan(lambda c, _: (0, c), snp.asarray(np.int32(1)), length=2)
    assert (last.weak_type, y.weak_type) == (True, False)
    count, total = lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + half.astype("float32")), (0, 0.0)
    )
    assert (count.weak_type, total.weak_type) == (True, False)


def test_map() -> None:
    same(both(lambda x: lax.map(lambda row: row.sum(), x), X), X.sum(1))
    first, second = both(lambda x: lax.map(lambda p: (p[0] + 1, p[1] * p[0]), (x, x)), X)
    same(first, X + 1)
    same(second, X * X)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 7])
def test_map_in_batches(batch_size: int) -> None:
    seen: list[tuple[int, ...]] = []

    def double(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(row["x"].shape)
        return {"sum": row["x"].sum(), "double": row["x"] * 2}

    x = np.arange(12, dtype=np.float32).reshape((4, 3))
    made = both(lambda x: lax.map(double, {"x": x}, batch_size=batch_size), x)
    same(made["sum"], x.sum(1))
    same(made["double"], x * 2)
    assert {*seen} == {(3,)}
    text = sd.jit(lambda x: lax.map(double, {"x": x}, batch_size=batch_size)).lower(x).as_text()
    assert ("scan" in text) == (batch_size <= 4)


def test_the_batch_size_of_map_is_positive() -> None:
    with pytest.raises(ArgumentError) as caught:
        lax.map(lambda x: x, X, batch_size=0)
    assert str(caught.value).split("\n")[0] == "batch_size of map is at least 1, got 0"


def test_while_loop() -> None:
    def collatz(n: Any) -> Any:
        return lax.while_loop(
            lambda s: s[0] != 1,
            lambda s: (snp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1),
            (n, 0),
        )[1]

    assert [int(both(collatz, np.array(n, np.int32))) for n in (1, 6, 27)] == [0, 8, 111]
    limit = both(lambda x, top: lax.while_loop(lambda c: c.sum() < top, lambda c: c * 2, x), ROW,
                 np.array(100, np.float32))  # fmt: skip
    same(limit, ROW * 32)
    assert int(both(lambda: lax.while_loop(lambda c: False, lambda c: c + 1, 5))) == 5


def test_fori_loop() -> None:
    same(both(lambda x: lax.fori_loop(1, 4, lambda i, c: c + i, x), ROW), ROW + 6)
    same(both(lambda x: lax.fori_loop(4, 1, lambda i, c: c + i, x), ROW), ROW)
    for low, high in ((0, 5), (2, 2), (-3, 3)):
        bounds = np.array(low, np.int32), np.array(high, np.int32)
        same(both(lambda x, a, b: lax.fori_loop(a, b, lambda i, c: c + i, x), ROW, *bounds),
             ROW + sum(range(low, high)))  # fmt: skip
    assert ops(lambda x: lax.fori_loop(0, 3, lambda i, c: c + i, x), ROW)[-1] == "scan"
    assert ops(lambda n: lax.fori_loop(0, n, lambda i, c: c + i, 0), np.array(3))[-1] == "while"
    narrow = np.array(3, np.int8)
    assert int(both(lambda n: lax.fori_loop(0, n, lambda i, c: c + i, 0), narrow)) == 3


def test_cond() -> None:
    def choose(p: Any, x: Any) -> Any:
        return lax.cond(p, lambda v: v + 1, lambda v: v * 10, x)

    for flag in (True, False):
        expected = ROW + 1 if flag else ROW * 10
        same(both(choose, np.array(flag), ROW), expected)
        same(both(lambda x, f=flag: choose(f, x), ROW), expected)
        same(both(choose, np.array(int(flag) * 7), ROW), expected)
    same(both(lambda x: lax.cond(x[0] > 0, lambda: x, lambda: -x), ROW), ROW)
    got = both(lambda x: lax.cond(x[0] > 5, lambda v: [v], lambda v: [-v], operand=x), ROW)
    same(got, [-ROW])


def test_python_scalar_branches_have_the_dtype_of_other_branches() -> None:
    got = both(lambda x: lax.cond(x[0] > 0, lambda: 1, lambda: x[1]), ROW)
    same(got, np.float32(1))
    assert lax.cond(True, lambda: 1, lambda: 2.5).weak_type


def test_switch() -> None:
    branches = [lambda x: x, lambda x: x * 2, lambda x: -x]
    for index, expected in ((0, ROW), (1, ROW * 2), (2, -ROW), (7, -ROW), (-3, ROW)):
        same(
            both(lambda i, x: lax.switch(i, branches, x), np.array(index, np.int32), ROW), expected
        )
        if index >= 0:
            same(both(lambda i, x: lax.switch(i, branches, x), np.array(index, np.uint8), ROW),
                 expected)  # fmt: skip
    same(both(lambda i, x: lax.switch(i, branches[:1], x), np.array(3), ROW), ROW)


def test_values_are_named_after_variables() -> None:
    def program(x: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            scaled = x * 2
            return carry + scaled, scaled

        total, doubled = lax.scan(body, 0.0, x)
        return total, doubled

    function = trace(program, ROW)[0].function
    loop = next(op for op in function.body.ops if op.name == "scan")
    assert [value.name for value in loop.results] == ["total", "doubled"]
    assert [value.name for value in loop.blocks[0].params] == ["carry", "x"]
    assert "scaled" in [value.name for op in loop.blocks[0].ops for value in op.results]
    assert loop.loc is not None
    assert loop.loc.file.endswith("test_control.py")


def test_associative_scan() -> None:
    x = np.array([2.0, 3.0, 5.0, 7.0, 11.0], np.float32)
    same(both(lambda x: lax.associative_scan(snp.add, x), x), np.cumsum(x))
    same(both(lambda x: lax.associative_scan(lambda a, b: a * b, x, reverse=True), x),
         np.cumprod(x[::-1])[::-1])  # fmt: skip
    same(both(lambda x: lax.associative_scan(snp.maximum, x, axis=1), X), X)

    def compose(first: Any, second: Any) -> Any:
        """Compose affine maps, which do not commute."""
        return first[0] * second[0], first[1] * second[0] + second[1]

    for reverse in (False, True):
        a, b = both(lambda x, r=reverse: lax.associative_scan(compose, (x, x), reverse=r), x)
        order = x[::-1] if reverse else x
        value, expected = np.float32(0), []
        for each in order:
            value = value * each + each
            expected.append(value)
        same(b, np.array(expected[::-1] if reverse else expected, np.float32))
        same(a, np.cumprod(order)[::-1] if reverse else np.cumprod(order))


def test_associative_scan_along_a_sharded_dimension_moves_few_bytes() -> None:
    """Every other element is local to its device, so that fewer bytes are sent than by an
    all-gather.
    """
    devices = sd.devices()[:4]
    mesh = sd.make_mesh((4,), ("x",), devices=devices)
    rows = sd.device_put(
        np.ones((64, 128), np.float32), sd.NamedSharding(mesh, sd.PartitionSpec("x"))
    )

    def calls(x: Any) -> Any:
        return lax.associative_scan(snp.add, x)

    sent = sum(
        each.sent * each.counted_executions for each in testing.collectives(sd.jit(calls), (rows,))
    )
    assert 0 < sent <= 40 * 512
    same(sd.jit(calls)(rows), np.cumsum(np.asarray(rows), 0))
    seen: list[int] = []

    def counted(a: Any, b: Any) -> Any:
        seen.append(a.shape[0])
        return a + b

    run(lambda x: lax.associative_scan(counted, x), np.ones(100, np.float32))
    assert sum(seen) < 200


FAULTS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: lax.scan(lambda c, r: c, 0.0, x),
     "the body of scan must return a pair (carry, y), it returned one array"),
    (lambda x: lax.scan(lambda c, r: ((c, c), r), 0.0, x),
     "the body of scan must return containers like its carry *, got (*, *)"),
    (lambda x: lax.scan(lambda c, r: (c[None], r), x[0], x),
     "the body of scan must return the types of its carry: value 0 is f32[3] in the carry and "
     "f32[1, 3] in the result, so the shapes differ; make both one shape, for example with "
     ".reshape"),
    (lambda x: lax.scan(lambda c, r: (c.astype(int), r), x[0], x),
     "the body of scan must return the types of its carry: value 0 is f32[3] in the carry and "
     "i32[3] in the result, so the dtypes differ; make both one type, for example with .astype"),
    (lambda x: lax.scan(lambda c, r: ((c[0], {"w": r[None].astype(int)}), r), (0.0, {"w": x[0]}),
                        x),
     "the body of scan must return the types of its carry: value [1]['w'] is f32[3] in the carry "
     "and i32[1, 3] in the result, so the shapes and the dtypes differ; make both one type, for "
     "example with .reshape and .astype"),
    (lambda x: lax.scan(lambda c, r: (c, r), 0.0), "scan without xs needs length="),
    (lambda x: lax.scan(lambda c, r: (c, r), 0.0, (x, x[:2])),
     "scan needs one leading size, got 4, 2"),
    (lambda x: lax.scan(lambda c, r: (c, r), 0.0, x, length=3),
     "scan needs one leading size, got 4, 3"),
    (lambda x: lax.scan(lambda c, r: (c, r), 0.0, (x, 1.0)),
     "scan iterates along the first dimension of xs, and an array of xs is a scalar"),
    (lambda x: lax.scan(lambda c, r: (c, r), "no", x),
     "the carry of scan is 'no' of type str, which is not an array"),
    (lambda x: lax.scan(lambda c, r: (c, "no"), 0.0, x),
     "the body of scan returned 'no' of type str, which is not an array"),
    (lambda x: lax.while_loop(lambda c: c, lambda c: c, x),
     "the condition of while_loop must return one bool[], and it returned f32[4, 3]; "
     "return a comparison, such as x > 0"),
    (lambda x: lax.while_loop(lambda c: (), lambda c: c, x),
     "the condition of while_loop must return one bool[], and it returned nothing; "
     "return a comparison, such as x > 0"),
    (lambda x: lax.while_loop(lambda c: True, lambda c: (c, c), x),
     "the body of while_loop must return containers like its carry *, got (*, *)"),
    (lambda x: lax.while_loop(lambda c: True, lambda c: c, ()),
     "init_val of while_loop contains no array, so its condition cannot change; pass at least one "
     "array"),
    (lambda x: lax.fori_loop(0.0, x[0, 0], lambda i, c: c, x),
     "the bounds of fori_loop are integers of rank 0, got f32[]"),
    (lambda x: lax.fori_loop(0, 3, lambda i, c: (c, c), x),
     "the body of fori_loop must return containers like its carry *, got (*, *)"),
    (lambda x: lax.cond(x > 0, lambda: 1, lambda: 2),
     "cond takes a scalar as condition, got f32[4, 3]; use snp.where for elements"
     .replace("f32", "bool")),
    (lambda x: lax.cond(True, lambda: (x, x), lambda: x),
     "branches must return the same containers, got * from false_fun (FILE:LINE) and (*, *) from "
     "true_fun (FILE:LINE)"),
    (lambda x: lax.cond(True, lambda: x, lambda: x[0]),
     "branches must return the same types: value 0 is f32[3] in false_fun (FILE:LINE) and f32[4, "
     "3] in true_fun (FILE:LINE), so the shapes differ; make both one shape, for example with "
     ".reshape"),
    (lambda x: lax.cond(True, lambda: x, lambda: x.astype(int)),
     "branches must return the same types: value 0 is i32[4, 3] in false_fun (FILE:LINE) and "
     "f32[4, 3] in true_fun (FILE:LINE), so the dtypes differ; make both one type, for example "
     "with .astype"),
    (lambda x: lax.cond(True, abs, lambda y: y[0] > 0, x),
     "branches must return the same types: value 0 is bool[3] in false_fun (FILE:LINE) and "
     "f32[4, 3] in true_fun (abs), so the shapes and the dtypes differ; make both one type, "
     "for example with .reshape and .astype"),
    (lambda x: lax.switch(1, [lambda: (x, x), lambda: (x, x), lambda: (x, x > 0)]),
     "branches must return the same types: value [1] is f32[4, 3] in branch 0 (FILE:LINE) and "
     "bool[4, 3] in branch 2 (FILE:LINE), so the dtypes differ; make both one type, for example "
     "with .astype"),
    (lambda x: lax.switch(0, []), "switch has no branches; pass at least one function"),
    (lambda x: lax.switch(x[0, 0], [lambda: 1, lambda: 2]),
     "switch takes an integer of rank 0 as index, got f32[]"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_invalid_calls_are_errors(call: Any, message: str) -> None:
    computes: list[Callable[[], Any]] = [lambda: run(call, X), lambda: call(from_numpy(X))]
    for compute in computes:
        with pytest.raises(ControlFlowError) as caught:
            compute()
        first, *rest = str(caught.value).split("\n")
        assert re.sub(r"\(\S*test_control\.py:\d+\)", "(FILE:LINE)", first) == message
        assert "test_control.py" in rest[0]


def test_the_error_of_python_control_flow_names_the_alternative() -> None:
    def body(carry: Any, row: Any) -> Any:
        return (carry if carry > 0 else row.sum()), None

    with pytest.raises(TracedValueError) as caught:
        lax.scan(body, 0.0, X)
    assert str(caught.value).startswith(
        "a traced bool[] has no truth value while the body of scan is traced; choose elementwise "
        "with snp.where, between computations with lax.cond, loop with lax.while_loop, or make "
        "the argument it comes from static (static_argnums)\n"
    )


def test_tracers_leaked_from_a_body_are_errors() -> None:
    kept: list[Any] = []

    def body(carry: Any, row: Any) -> Any:
        kept.append(row)
        return carry, None

    def program(x: Any) -> Any:
        lax.scan(body, 0.0, x)
        return kept[-1] + 1

    with pytest.raises(LeakedTracerError, match="the body of scan has ended"):
        run(program, X)


def test_functions_with_wrong_parameters_are_errors() -> None:
    faults: list[tuple[Callable[[], Any], str]] = [
        (lambda: lax.scan(3, 0, X), "the body of scan must be a function, got 3"),  # type: ignore[arg-type]
        (lambda: lax.scan(lambda c: c, 0, X),  # type: ignore[misc, arg-type]
         "the body of scan takes (c): too many positional arguments"),
        (lambda: lax.cond(True, lambda x: x, lambda: 2, 3),
         "a branch of cond takes (): too many positional arguments"),
        (lambda: lax.fori_loop(0, 3, lambda i: i, 0),  # type: ignore[misc, arg-type]
         "the body of fori_loop takes (i): too many positional arguments"),
        (lambda: lax.while_loop(lambda: True, lambda x: x, 0),  # type: ignore[misc, arg-type]
         "the condition of while_loop takes (): too many positional arguments"),
    ]  # fmt: skip
    for call, message in faults:
        with pytest.raises(ArgumentError) as caught:
            call()
        first, *rest = str(caught.value).split("\n")
        assert re.sub(r"\(\S*test_control\.py:\d+\)", "(FILE:LINE)", first) == message
        assert "test_control.py" in rest[0]


def test_the_length_of_a_scan_must_be_an_integer() -> None:
    with pytest.raises(ControlFlowError, match=r"the length of scan must be an integer, got 2\.5"):
        lax.scan(lambda c, _: (c, None), 0, None, length=2.5)  # type: ignore[arg-type]


def test_the_index_of_a_loop_is_weakly_typed() -> None:
    def total(stop: Any) -> Any:
        return lax.fori_loop(0, stop, lambda i, c: c + i, from_numpy(np.int8(1)))

    for found in (total(3), jit(lambda: total(3))(), jit(total)(3)):
        assert found.dtype == np.int8
        assert int(found) == 4


HUGE = 10**30
LOOPS: list[tuple[Callable[..., Any], str]] = [
    (
        lambda: lax.fori_loop(0, HUGE, lambda i, c: c, 0),
        f"the last index of fori_loop is {HUGE - 1}, which does not fit into int32",
    ),
    (
        lambda: lax.fori_loop(-HUGE, 0, lambda i, c: c, 0),
        f"lower of fori_loop is {-HUGE}, which does not fit into int32",
    ),
    (
        lambda: lax.fori_loop(HUGE, 0, lambda i, c: c, 0),
        f"lower of fori_loop is {HUGE}, which does not fit into int32",
    ),
    (
        lambda: lax.fori_loop(2**31 - 3, 2**31 + 5, lambda i, c: i, 0),
        f"the last index of fori_loop is {2**31 + 4}, which does not fit into int32",
    ),
    (
        lambda: lax.fori_loop(-(2**31), 2**31 - 1, lambda i, c: c, 0),
        f"the number of rounds of fori_loop is {2**32 - 1}, which does not fit into int32",
    ),
    (
        lambda: lax.scan(lambda c, x: (c, x), 0, None, length=2**31),
        f"the length of scan is {2**31}, which does not fit into int32",
    ),
]


@pytest.mark.parametrize(("loop", "says"), LOOPS, ids=[says for _, says in LOOPS])
def test_a_loop_bound_out_of_range_of_its_dtype_is_an_error(
    loop: Callable[..., Any], says: str
) -> None:
    hint = ", the type of the loop counter"
    if str(HUGE) not in says and str(HUGE - 1) not in says:
        hint += "; shardir.enable_x64() makes it int64"
    for call in (loop, jit(loop)):
        with pytest.raises(NumberRangeError) as caught:
            call()
        assert str(caught.value).partition("\n")[0] == says + hint


def test_a_loop_counts_in_64_bits_with_enable_x64() -> None:
    with sd.enable_x64():
        assert int(lax.fori_loop(2**40, 2**40 + 3, lambda i, c: i, 0)) == 2**40 + 2
        with pytest.raises(
            NumberRangeError, match=r"length of scan is 1\d{30}, .* int64, the type"
        ):
            lax.scan(lambda c, x: (c, x), 0, None, length=HUGE)


def test_a_python_bound_must_fit_the_dtype_of_the_other_bound() -> None:
    def rounds(lower: Any, upper: Any) -> Any:
        return lax.fori_loop(lower, upper, lambda i, c: c + 1, 0)

    narrow = snp.int8(0)
    assert int(rounds(narrow, 127)) == 127
    assert int(rounds(2, snp.uint8(200))) == 198
    says = "upper of fori_loop is 300, which does not fit into int8, the type of the loop counter"
    for call in (rounds, jit(rounds, static_argnums=1)):
        with pytest.raises(NumberRangeError, match=says):
            call(narrow, 300)
    with pytest.raises(ControlFlowError, match="integers of one type, got i8 and i32; convert one"):
        rounds(narrow, snp.int32(300))


def test_cond_accepts_an_operand_for_each_branch() -> None:
    def f(x: Any) -> Any:
        return lax.cond(x[0] > 5, x, lambda v: v * 2, {"a": -x}, lambda tree: tree["a"])

    assert both(f, ROW).tolist() == (-ROW if ROW[0] <= 5 else 2 * ROW).tolist()
    assert both(f, ROW + 10).tolist() == (2 * (ROW + 10)).tolist()
