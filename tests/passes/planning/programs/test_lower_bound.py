"""The lower bound of plans: communication between placements, strategies, and reports."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.errors import MachineError
from shardir.ir.mesh import Mesh
from shardir.machine import load_machine
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning import automatic
from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.programs import lower_bound, strategy_problem
from shardir.passes.planning.programs.lower_bound import LowerBound, find_lower_bound
from shardir.passes.planning.programs.placements import PARTIAL, UNSHARDED, sent_part
from shardir.passes.planning.programs.planning_request import PlanningRequest, make_evaluator
from tests.passes.planning.programs.machines import SimpleMachine

R, P = UNSHARDED, PARTIAL


@pytest.mark.parametrize(
    ("source", "target", "sizes", "part"),
    [
        ((R,), (0,), (4,), Fraction(0)),
        ((0,), (R,), (4,), Fraction(3, 4)),
        ((0,), (1,), (4,), Fraction(3, 16)),
        ((P,), (R,), (4,), Fraction(6, 4)),
        ((P,), (0,), (4,), Fraction(3, 4)),
        ((P,), (P,), (4,), Fraction(0)),
        ((R,), (P,), (4,), Fraction(0)),
        # The shard of each device, with zeros elsewhere, is a term of the value.
        ((0,), (P,), (4,), Fraction(0)),
        ((0, 1), (P, R), (2, 2), Fraction(1, 4)),
        # Each device along one axis contributes a part of the value.
        ((R, 0), (P, R), (2, 2), Fraction(1, 4)),
        ((R, P), (P, R), (2, 2), Fraction(2, 4)),
        ((P, P), (R, R), (2, 2), Fraction(6, 4)),
        # A reduce-scatter, a slice along the other axis, and all-gathers along both.
        ((P, R), (R, R), (4, 2), Fraction(10, 8)),
        ((0, R), (1, R), (2, 2), Fraction(1, 4)),
        # Devices keep the blocks on the diagonal.
        ((0, 1), (1, 0), (2, 2), Fraction(1, 8)),
        ((0, 0), (1, 1), (2, 2), Fraction(3, 16)),
    ],
)
def test_sent_parts_are_those_of_optimal_collectives(
    source: tuple[int, ...], target: tuple[int, ...], sizes: tuple[int, ...], part: Fraction
) -> None:
    assert sent_part(source, target, sizes) == part


def bound_of(
    fun: Any, *shapes: tuple[int, ...], axes: Any = None, seconds: float = 600.0, **options: Any
) -> LowerBound:
    """Return a lower bound for a plan with given axes of the arguments.

    The search ends when its bound is proven; the default time limit is that of a slow machine.
    """
    structs = [sd.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    module = sd.jit(fun).lower(*structs).module
    mesh = Mesh("mesh", (("x", 4),))
    request = PlanningRequest(module, mesh, Pipeline.parse(DEFAULT_PIPELINE), **options)
    chosen = make_evaluator(request).evaluate(axes or tuple(tuple(() for _ in s) for s in shapes))
    assert chosen is not None
    return find_lower_bound(request, chosen, seconds)


ROWS, COLUMNS = (("x",), ()), ((), ("x",))


def test_a_program_without_communication_has_the_bound_0() -> None:
    bound = bound_of(lambda x, w: x @ w, (64, 32), (32, 128), axes=(ROWS, ((), ())))
    assert bound == LowerBound(2 * 64 * 32 * 128 // 4, 0)


def test_the_bytes_of_plans_with_more_flops_than_necessary_are_not_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A better plan has fewer flops, whatever it sends."""
    monkeypatch.setattr(lower_bound, "search", lambda *_, **__: pytest.fail("the search began"))
    module = sd.jit(lambda w: w @ w.T).lower(sd.ShapeDtypeStruct((64, 32), "float32")).module
    request = PlanningRequest(module, Mesh("mesh", (("x", 4),)), Pipeline.parse(DEFAULT_PIPELINE))
    chosen = replace(make_evaluator(request).require((((), ()),)), bytes_sent=1024)
    bound = find_lower_bound(request, chosen, 600.0)
    assert bound == LowerBound(2 * 64 * 64 * 32 // 4, 0)


def test_loops_reshard_values_that_they_do_not_change_once() -> None:
    def fun(x: Any, w: Any) -> Any:
        return sd.lax.scan(lambda x, _: (snp.tanh(x @ w), None), x, None, length=5)[0]

    axes = ROWS, ROWS
    bound = bound_of(fun, (64, 32), (32, 32), axes=axes, fixed=axes)
    assert bound == LowerBound(5 * 2 * 64 * 32 * 32 // 4, 32 * 32 * 4 * 3 // 4)


def test_bytes_of_loops_count_for_each_iteration() -> None:
    """The gradients of all iterations but the last one are reduced; the bound has no placement for
    the result of a loop."""

    def fun(x: Any, w: Any) -> Any:
        def step(w: Any, _: Any) -> Any:
            return w - x.T @ snp.tanh(x @ w), None

        return sd.lax.scan(step, w, None, length=5)[0]

    axes = ROWS, ((), ())
    bound = bound_of(fun, (4096, 32), (32, 8), axes=axes, fixed=axes)
    assert bound == LowerBound(5 * 4 * 4096 * 32 * 8 // 4, 4 * 32 * 8 * 4 * 6 // 4)


def test_loops_without_iterations_cost_nothing() -> None:
    def fun(x: Any, w: Any) -> Any:
        return sd.lax.scan(lambda x, _: (snp.tanh(x @ w), None), x, None, length=0)[0]

    axes = ROWS, ROWS
    machine = SimpleMachine(seconds_per_flop=1e-6)
    bound = bound_of(fun, (64, 32), (32, 32), axes=axes, fixed=axes, machine=machine)
    assert bound == LowerBound(0, 0, 0.0)


def test_the_fewest_flops_bound_the_time() -> None:
    machine = SimpleMachine(seconds_per_flop=1e-6)
    bound = bound_of(lambda x, w: x @ w, (64, 32), (32, 128), machine=machine)
    assert bound.seconds == pytest.approx(2 * 64 * 32 * 128 // 4 * 1e-6)


def test_a_machine_without_a_rate_of_the_dtype_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes before the search of the bound, and with the rate that it states the program
    has a bound."""
    file = tmp_path / "small.toml"
    rate = 'flops_per_second = 1e12\nefficiency = 0.8\nsource = "..."'
    file.write_text(f'description = "small"\n[matmul.bf16]\n{rate}\n')
    module = sd.jit(snp.matmul).lower(*[sd.ShapeDtypeStruct((64, 64), "float32")] * 2).module
    mesh = Mesh("mesh", (("x", 4),))
    request = PlanningRequest(module, mesh, Pipeline.parse(DEFAULT_PIPELINE))
    chosen = make_evaluator(request).require(((("x",), ()), ((), ())))
    with monkeypatch.context() as patch:
        patch.setattr(lower_bound, "load_kernels", lambda: pytest.fail("the search has begun"))
        with pytest.raises(MachineError) as caught:
            find_lower_bound(replace(request, machine=load_machine(file)), chosen, 600.0)
    assert str(caught.value) == (
        f"machine 'small' has no matmul.f32.flops_per_second; add it to {file} with its source:\n"
        f"[matmul.f32]\n{rate}"
    )
    file.write_text(f"{file.read_text()}\n{str(caught.value).partition(chr(10))[2]}\n")
    bound = find_lower_bound(replace(request, machine=load_machine(file)), chosen, 600.0)
    assert bound == LowerBound(2 * 64**3 // 4, 0, 2 * 64**3 // 4 / 1e12)


def test_given_shardings_raise_the_bound() -> None:
    """One operand is gathered, and the other one exchanges rows for columns; to sum the products of
    the shards would send more."""
    axes = COLUMNS, ROWS
    bound = bound_of(lambda x, w: x @ w, (64, 32), (32, 64), axes=axes, fixed=axes)
    assert bound.bytes_sent == 64 * 32 * 4 * 3 // 4 + 64 * 32 * 4 * 3 // 16


@pytest.mark.needs("pytoulbar2")
def test_the_memory_of_arguments_raises_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, each device has both operands of the sum."""
    monkeypatch.setattr(automatic, "MAX_SEARCH_SECONDS", 0.0)
    nbytes = 64 * 64 * 4
    for limit, sent in ((nbytes, 0), (nbytes // 4, nbytes * 3 // 16)):
        bound = bound_of(lambda w: w + w.T, (64, 64), axes=(ROWS,), memory_limit=limit)
        assert bound.bytes_sent == sent


def test_a_diagonal_is_not_bounded_by_its_matrix() -> None:
    """The program sends a masked sum of each row, where the columns are sharded."""
    bound = bound_of(lambda w: w.diagonal(), (64, 64), axes=(COLUMNS,), fixed=(COLUMNS,))
    assert bound == LowerBound(0, 0)


def test_sums_without_terms_have_strategies() -> None:
    bound = bound_of(lambda x, w: x @ w, (4, 0), (0, 8), axes=(ROWS, ((), ())))
    assert bound == LowerBound(0, 0)


def test_the_time_limit_ends_the_search_without_an_error() -> None:
    bound = bound_of(lambda w: w @ w.T, (64, 32), axes=(ROWS,), fixed=(ROWS,), seconds=1e-9)
    assert bound == LowerBound(2 * 64 * 64 * 32 // 4, 0)


def test_too_many_strategies_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategy_problem, "MAX_PAIRS", 10)
    with pytest.raises(PlanningError) as caught:
        bound_of(lambda x, w: x @ w, (64, 32), (32, 128))
    assert str(caught.value) == (
        "the program has more than 10 pairs of strategies of operations, too many for a lower "
        "bound; use a mesh with fewer axes, or fewer layers"
    )
