"""`progress` reports the stages of a compilation to a callback."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir.backends.cpu.codegen import kernel_table, object_cache
from shardir.backends.cpu.codegen.kernel_table import MAX_KERNELS_PER_MODULE
from shardir.backends.cpu.dispatch.program_table import load_program
from shardir.backends.cpu.kernel_api import Phase
from shardir.display.compilation_progress import report, report_compilation_of
from tests.backends.cpu.sample_kernels import _multiply_add, make_kernel
from tests.error_assertions import first_line


@pytest.fixture
def empty_code_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use an empty directory as the object cache."""
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "code"))
    object_cache.cache_folder.cache_clear()
    yield
    object_cache.cache_folder.cache_clear()


def test_each_pass_is_reported_with_its_number() -> None:
    seen: list[sd.Progress] = []

    @sd.jit
    def step(x: sd.Array) -> sd.Array:
        made: sd.Array = jnp.tanh(x) * 2
        return made

    x = jnp.ones(3)
    with sd.progress(seen.append):
        step(x)
    passes = [each for each in seen if each.stage != "kernels"]
    assert [each.done for each in passes] == list(range(1, len(passes) + 1))
    assert {each.total for each in passes} == {len(passes)}
    assert (passes[0].stage, passes[-1].stage) == ("propagate", "dce")
    assert {each.program for each in seen} == {"step"}
    assert 0 < seen[0].seconds <= seen[-1].seconds
    known = len(seen)
    with sd.progress(seen.append):
        step(x)
    assert len(seen) == known


def test_each_kernel_is_reported_when_it_is_compiled(
    empty_code_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 1)
    seen: list[sd.Progress] = []
    count = 2 * MAX_KERNELS_PER_MODULE + 3
    kinds = [make_kernel(f"progress_{number}", _multiply_add) for number in range(count)]
    with sd.progress(seen.append), report_compilation_of("many"):
        load_program([Phase(kind, (1,), 1, 0.0) for kind in kinds], 2)
        load_program([Phase(kind, (1,), 1, 0.0) for kind in kinds], 2)
    assert [(each.program, each.stage, each.done, each.total) for each in seen] == [
        ("many", "kernels", MAX_KERNELS_PER_MODULE, count),
        ("many", "kernels", 2 * MAX_KERNELS_PER_MODULE, count),
        ("many", "kernels", count, count),
    ]


def test_nothing_is_reported_outside_of_the_block() -> None:
    seen: list[sd.Progress] = []
    with sd.progress(seen.append):
        report("kernels", 1, 1)  # not of a program
    with report_compilation_of("program"):
        report("kernels", 1, 1)
    assert seen == []


def test_an_exception_of_the_callback_ends_the_compilation() -> None:
    class Enough(Exception):
        pass

    def enough(progress: sd.Progress) -> None:
        raise Enough

    @sd.jit
    def step(x: sd.Array) -> sd.Array:
        made: sd.Array = x + 1
        return made

    with sd.progress(enough), pytest.raises(Enough):
        step(jnp.ones(3))
    assert (step(jnp.ones(3)) == 2).all()


def test_a_callback_that_is_not_callable_is_an_error() -> None:
    nobody: Any = 3
    with pytest.raises(sd.ShardirError) as error, sd.progress(nobody):
        pass
    assert first_line(error) == "progress calls a function of one Progress, got 3"
