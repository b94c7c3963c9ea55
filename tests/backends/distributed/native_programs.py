"""Run in several processes: native programs, and programs that NumPy executes instead."""

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
from tests.backends.distributed.distributed_arrays import W, error_message, put_on_mesh, sharding

LARGE = np.arange(64 * 96, dtype=np.float32).reshape(64, 96)
CHECKS: list[Callable[[], None]] = []


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS.append(function)
    return function


def stage_text(function: Callable[..., Any], *args: Any, stage: str = "schedule") -> str:
    """Return the text of a stage of a function that is compiled for all processes."""
    return str(sd.jit(function).lower(*args).compile().as_text(stage))


@check
def messages_separate_native_calls() -> None:
    x = put_on_mesh(W, "x")
    schedule = stage_text(lambda x: snp.tanh(x - snp.max(x, 0)), x)
    steps = [line for line in schedule.partition("phases\n")[2].splitlines() if line[2] != " "]
    kinds = [line.strip().partition(" ")[0] for line in steps]
    assert kinds == ["native", "messages:", "native"], schedule
    assert steps[1].startswith("  messages: %0 = all-reduce "), schedule


@check
def stages_show_each_level_of_a_collective() -> None:
    x = put_on_mesh(W, "x")
    levels = stage_text(lambda x: snp.max(x, 0), x, stage="hierarchical-collectives")
    merged = stage_text(lambda x: snp.max(x, 0), x, stage="merge-devices")
    if sd.process_count() == 2:
        assert "axes=[x:(1)2], op=max" in levels
    assert f"mesh @mesh = [x={sd.process_count()}]" in merged
    found = error_message(PipelineError, lambda: stage_text(lambda x: x + 1, x, stage="nothing"))
    assert found.startswith(
        "no stage is named 'nothing'; the stages are hierarchical-collectives, "
    )
    assert found.endswith(", fuse, or schedule")


@check
def results_of_a_program_stay_contiguous_for_the_next() -> None:
    x = put_on_mesh(W, "x", "y")
    once = sd.jit(lambda x: x * 2)(x)
    held = once.device_shards
    assert isinstance(held, ShardWindows)
    assert len(held) == sd.local_device_count()
    twice = sd.jit(lambda x: x + 1)(once)
    assert once.device_shards is held
    np.testing.assert_array_equal(gather_to_all(twice), W * 2 + 1)


@check
def memory_analysis_counts_this_process_only() -> None:
    x = put_on_mesh(W, "x", "y")
    found = sd.jit(lambda x: x * 2).lower(x).compile().memory_analysis()
    assert found.host_peak_memory_in_bytes == 2 * W.nbytes // sd.process_count()


def address(x: Any) -> int:
    """Return the address of the shards of an array in this process."""
    assert isinstance(x.buffers, ShardWindows)
    return x.buffers.storage.address


@check
def shards_are_joined_once() -> None:
    x, y = put_on_mesh(W, "x", "y"), put_on_mesh(W, "y")
    add = sd.jit(lambda x, y: x + y)
    add(x, y)
    addresses = address(x), address(y)
    np.testing.assert_array_equal(gather_to_all(add(x, y)), W + W)
    assert (address(x), address(y)) == addresses


@check
def results_take_the_memory_of_donated_arguments() -> None:
    def step(w: Any, x: Any) -> Any:
        return w * 2 + snp.max(x)

    donating_step = sd.jit(step, donate_argnums=0)
    w, x = put_on_mesh(LARGE, "x", "y"), put_on_mesh(W, "y")
    plain, donating = (
        each.lower(w, x).compile().memory_analysis() for each in (sd.jit(step), donating_step)
    )
    assert donating.alias_size_in_bytes == LARGE.nbytes // 8
    saved = plain.host_peak_memory_in_bytes - donating.host_peak_memory_in_bytes
    assert saved == LARGE.nbytes // sd.process_count()
    want, addresses = LARGE, set[int]()
    for _ in range(3):
        before, w = w, donating_step(w, x)
        want = want * 2 + W.max()
        assert before.is_deleted()
        addresses.add(address(w))
    assert len(addresses) == 1
    np.testing.assert_array_equal(gather_to_all(w), want)


@check
def referenced_buffers_are_not_overwritten() -> None:
    double = sd.jit(lambda w: w + w, donate_argnums=0)
    reference_makers: list[Callable[[Any], Any]] = [
        lambda x: sd.device_put(x, NamedSharding(x.sharding.mesh, P("x", None))),
        lambda x: sd.distributed.gather_to_all(x),
        lambda x: sd.jit(lambda x: (x, x * 2))(x)[0],
    ]
    for make_reference in reference_makers:
        x = double(put_on_mesh(LARGE, "x"))
        reference = make_reference(x)
        double(x)
        assert x.is_deleted()
        np.testing.assert_array_equal(gather_to_all(reference), LARGE * 2)
    x = double(put_on_mesh(LARGE, "x"))
    parts = [shard.data for shard in x.addressable_shards]
    want = [np.asarray(part).copy() for part in parts]
    double(x)
    np.testing.assert_array_equal([np.asarray(part) for part in parts], want)
    x = double(put_on_mesh(LARGE, "x"))
    one, other = sd.jit(lambda x, y: (x * 2, y + 1), donate_argnums=0)(x, x)
    np.testing.assert_array_equal(gather_to_all(one), LARGE * 4)
    np.testing.assert_array_equal(gather_to_all(other), LARGE * 2 + 1)


@check
def donated_arguments_are_sent_before_they_are_overwritten() -> None:
    large = np.arange(1 << 17, dtype=np.float32).reshape(8, -1)
    x = put_on_mesh(large, "x")
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


@check
def results_do_not_alias_numpy_arguments() -> None:
    mine = np.ones((8, 12), np.float32)
    whole = sd.jit(lambda x: x, out_shardings=sharding())(mine)
    mine[:] = 5
    assert np.asarray(whole).max() == 1


@check
def collectives_run_in_every_iteration() -> None:
    def sweep(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            total = snp.sum(carry)
            return lax.cond(total > 0, lambda c: c - total / 96, lambda c: c + 1, carry), total

        return lax.scan(step, x, None, length=3)

    carry, totals = sd.jit(sweep)(put_on_mesh(W, "x", "y"))
    want, sums = W.copy(), []
    for _ in range(3):
        total = want.sum()
        sums.append(total)
        want = want - total / 96 if total > 0 else want + 1
    np.testing.assert_allclose(gather_to_all(carry), want, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(gather_to_all(totals), sums, rtol=1e-4, atol=1e-2)

    def halve(x: Any) -> Any:
        return lax.while_loop(lambda x: snp.max(x) > 1, lambda x: x / 2, x)

    np.testing.assert_array_equal(gather_to_all(sd.jit(halve)(put_on_mesh(W, "x"))), W / 128)


@check
def random_numbers_equal_those_of_one_process() -> None:
    key = sd.random.key(7)
    drawn = sd.jit(lambda key: sd.random.normal(key, (8, 12)), out_shardings=sharding("x", "y"))
    program = drawn.lower(key).compile()
    assert "native call" in program.as_text("schedule")
    found = gather_to_all(drawn(key))
    np.testing.assert_array_equal(found, np.asarray(sd.random.normal(key, (8, 12))))


@check
def programs_with_effects_run_in_numpy() -> None:
    x, callback_values = put_on_mesh(W, "x"), list[float]()

    def total(x: Any) -> Any:
        made = snp.sum(x)
        sd.debug.callback(lambda each: callback_values.append(float(each)), made)
        return made

    assert float(sd.jit(total)(x)) == W.sum()
    assert callback_values
    assert set(callback_values) == {W.sum()}
    assert error_message(PipelineError, lambda: stage_text(total, x)).startswith(
        "there is no schedule: NumPy runs this program operation by operation"
    )


@check
def each_process_uses_its_share_of_the_cores() -> None:
    cores = len(os.sched_getaffinity(0))
    assert allowed_worker_count() == max(1, cores // sd.process_count())


def main() -> None:
    sd.distributed.initialize()
    for each in CHECKS:
        each()
    print("all", len(CHECKS))


if __name__ == "__main__":
    main()
