"""Run by mpiexec: programs as machine code in each process, and those that NumPy runs instead."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.backends.cpu.native.runtime.workers import allowed
from shardir.backends.windows import Windows
from shardir.distributed import gather_to_all
from shardir.errors import PipelineError
from tests.backends.mpi.arrays import W, put, refused, sharding

CLAIMS: list[Callable[[], None]] = []


def claim(function: Callable[[], None]) -> Callable[[], None]:
    CLAIMS.append(function)
    return function


def text(function: Callable[..., Any], *args: Any, stage: str = "schedule") -> str:
    """A stage of a function that is compiled for all processes."""
    return str(sd.jit(function).lower(*args).compile().as_text(stage))


@claim
def messages_stand_between_native_calls() -> None:
    x = put(W, "x")
    schedule = text(lambda x: snp.tanh(x - snp.max(x, 0)), x)
    steps = [line for line in schedule.partition("phases\n")[2].splitlines() if line[2] != " "]
    kinds = [line.strip().partition(" ")[0] for line in steps]
    assert kinds == ["native", "messages:", "native"], schedule
    assert steps[1].startswith("  messages: %0 = all-reduce "), schedule


@claim
def each_level_of_a_collective_is_shown() -> None:
    x = put(W, "x")
    levels = text(lambda x: snp.max(x, 0), x, stage="two-levels")
    merged = text(lambda x: snp.max(x, 0), x, stage="merge-devices")
    if sd.process_count() == 2:
        assert "axes=[x:(1)2], op=max" in levels
    assert f"mesh @mesh = [x={sd.process_count()}]" in merged
    found = refused(PipelineError, lambda: text(lambda x: x + 1, x, stage="nothing"))
    assert found.startswith("no stage is called 'nothing'; the stages are two-levels, ")
    assert found.endswith(", fuse, or schedule")


@claim
def results_stay_in_one_piece_for_the_next_program() -> None:
    x = put(W, "x", "y")
    once = sd.jit(lambda x: x * 2)(x)
    held = once.parts
    assert isinstance(held, Windows)
    assert len(held) == sd.local_device_count()
    twice = sd.jit(lambda x: x + 1)(once)
    assert once.parts is held
    np.testing.assert_array_equal(gather_to_all(twice), W * 2 + 1)


@claim
def memory_is_that_of_this_process() -> None:
    x = put(W, "x", "y")
    found = sd.jit(lambda x: x * 2).lower(x).compile().memory_analysis()
    assert found.host_peak_memory_in_bytes == 2 * W.nbytes // sd.process_count()


@claim
def arguments_of_the_user_are_not_results() -> None:
    mine = np.ones((8, 12), np.float32)
    whole = sd.jit(lambda x: x, out_shardings=sharding())(mine)
    mine[:] = 5
    assert np.asarray(whole).max() == 1


@claim
def loops_and_branches_exchange_in_every_round() -> None:
    def sweep(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            total = snp.sum(carry)
            return lax.cond(total > 0, lambda c: c - total / 96, lambda c: c + 1, carry), total

        return lax.scan(step, x, None, length=3)

    carry, totals = sd.jit(sweep)(put(W, "x", "y"))
    want, sums = W.copy(), []
    for _ in range(3):
        total = want.sum()
        sums.append(total)
        want = want - total / 96 if total > 0 else want + 1
    np.testing.assert_allclose(gather_to_all(carry), want, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(gather_to_all(totals), sums, rtol=1e-4, atol=1e-2)

    def halve(x: Any) -> Any:
        return lax.while_loop(lambda x: snp.max(x) > 1, lambda x: x / 2, x)

    np.testing.assert_array_equal(gather_to_all(sd.jit(halve)(put(W, "x"))), W / 128)


@claim
def random_numbers_are_those_of_one_process() -> None:
    key = sd.random.key(7)
    drawn = sd.jit(lambda key: sd.random.normal(key, (8, 12)), out_shardings=sharding("x", "y"))
    program = drawn.lower(key).compile()
    assert "native call" in program.as_text("schedule")
    found = gather_to_all(drawn(key))
    np.testing.assert_array_equal(found, np.asarray(sd.random.normal(key, (8, 12))))


@claim
def what_has_an_effect_is_run_by_numpy() -> None:
    x, seen = put(W, "x"), list[float]()

    def total(x: Any) -> Any:
        made = snp.sum(x)
        sd.debug.callback(lambda each: seen.append(float(each)), made)
        return made

    assert float(sd.jit(total)(x)) == W.sum()
    assert seen
    assert set(seen) == {W.sum()}
    assert refused(PipelineError, lambda: text(total, x)).startswith(
        "there is no schedule: NumPy runs this program operation by operation"
    )


@claim
def each_process_has_its_share_of_the_cores() -> None:
    cores = len(os.sched_getaffinity(0))
    assert allowed() == max(1, cores // sd.process_count())


def main() -> None:
    sd.distributed.initialize()
    for each in CLAIMS:
        each()
    print("all", len(CLAIMS))


if __name__ == "__main__":
    main()
