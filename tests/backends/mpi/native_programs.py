"""Run by mpiexec: programs as machine code in each process, and those that NumPy runs instead."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.backends.cpu.threads.workers import allowed_worker_count
from shardir.backends.shard_windows import ShardWindows
from shardir.distributed import gather_to_all
from shardir.errors import PipelineError
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.backends.mpi.distributed_arrays import W, put, refused, sharding

LARGE = np.arange(64 * 96, dtype=np.float32).reshape(64, 96)
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
    levels = text(lambda x: snp.max(x, 0), x, stage="hierarchical-collectives")
    merged = text(lambda x: snp.max(x, 0), x, stage="merge-devices")
    if sd.process_count() == 2:
        assert "axes=[x:(1)2], op=max" in levels
    assert f"mesh @mesh = [x={sd.process_count()}]" in merged
    found = refused(PipelineError, lambda: text(lambda x: x + 1, x, stage="nothing"))
    assert found.startswith(
        "no stage is named 'nothing'; the stages are hierarchical-collectives, "
    )
    assert found.endswith(", fuse, or schedule")


@claim
def results_stay_in_one_piece_for_the_next_program() -> None:
    x = put(W, "x", "y")
    once = sd.jit(lambda x: x * 2)(x)
    held = once.device_shards
    assert isinstance(held, ShardWindows)
    assert len(held) == sd.local_device_count()
    twice = sd.jit(lambda x: x + 1)(once)
    assert once.device_shards is held
    np.testing.assert_array_equal(gather_to_all(twice), W * 2 + 1)


@claim
def memory_is_that_of_this_process() -> None:
    x = put(W, "x", "y")
    found = sd.jit(lambda x: x * 2).lower(x).compile().memory_analysis()
    assert found.host_peak_memory_in_bytes == 2 * W.nbytes // sd.process_count()


def address(x: Any) -> int:
    """Where what this process holds of an array lies."""
    assert isinstance(x.held, ShardWindows)
    return x.held.storage.address


@claim
def arrays_are_brought_together_once() -> None:
    x, y = put(W, "x", "y"), put(W, "y")
    add = sd.jit(lambda x, y: x + y)
    add(x, y)
    places = address(x), address(y)
    np.testing.assert_array_equal(gather_to_all(add(x, y)), W + W)
    assert (address(x), address(y)) == places


@claim
def results_take_the_memory_of_donated_arguments() -> None:
    def step(w: Any, x: Any) -> Any:
        return w * 2 + snp.max(x)

    giving = sd.jit(step, donate_argnums=0)
    w, x = put(LARGE, "x", "y"), put(W, "y")
    kept, given = (each.lower(w, x).compile().memory_analysis() for each in (sd.jit(step), giving))
    assert given.alias_size_in_bytes == LARGE.nbytes // 8
    saved = kept.host_peak_memory_in_bytes - given.host_peak_memory_in_bytes
    assert saved == LARGE.nbytes // sd.process_count()
    want, places = LARGE, set[int]()
    for _ in range(3):
        before, w = w, giving(w, x)
        want = want * 2 + W.max()
        assert before.is_deleted()
        places.add(address(w))
    assert len(places) == 1
    np.testing.assert_array_equal(gather_to_all(w), want)


@claim
def what_somebody_else_holds_is_not_written_over() -> None:
    double = sd.jit(lambda w: w + w, donate_argnums=0)
    keepers: list[Callable[[Any], Any]] = [
        lambda x: sd.device_put(x, NamedSharding(x.sharding.mesh, P("x", None))),
        lambda x: sd.distributed.gather_to_all(x),
        lambda x: sd.jit(lambda x: (x, x * 2))(x)[0],
    ]
    for keep in keepers:
        x = double(put(LARGE, "x"))
        kept = keep(x)
        double(x)
        assert x.is_deleted()
        np.testing.assert_array_equal(gather_to_all(kept), LARGE * 2)
    x = double(put(LARGE, "x"))
    parts = [shard.data for shard in x.addressable_shards]
    want = [np.asarray(part).copy() for part in parts]
    double(x)
    np.testing.assert_array_equal([np.asarray(part) for part in parts], want)
    x = double(put(LARGE, "x"))
    one, other = sd.jit(lambda x, y: (x * 2, y + 1), donate_argnums=0)(x, x)
    np.testing.assert_array_equal(gather_to_all(one), LARGE * 4)
    np.testing.assert_array_equal(gather_to_all(other), LARGE * 2 + 1)


@claim
def donated_arguments_are_sent_before_they_are_written_over() -> None:
    large = np.arange(1 << 17, dtype=np.float32).reshape(8, -1)
    x = put(large, "x")
    total = sd.shard_map(
        lambda x: x + lax.psum(lax.psum(x, "x") * 2, "x"),
        mesh=x.sharding.mesh, in_specs=P("x"), out_specs=P("x"),
    )  # fmt: skip
    step = sd.jit(total, donate_argnums=0)
    want = large
    for _ in range(3):
        x = step(x)
        want = want + np.tile(want.reshape(4, 2, -1).sum(0) * 8, (4, 1))
        np.testing.assert_allclose(gather_to_all(x), want, rtol=1e-6)


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
    assert allowed_worker_count() == max(1, cores // sd.process_count())


def main() -> None:
    sd.distributed.initialize()
    for each in CLAIMS:
        each()
    print("all", len(CLAIMS))


if __name__ == "__main__":
    main()
