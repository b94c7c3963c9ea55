"""Programs on several processes give the results of one process; with NumPy, bit by bit."""

from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from shardir.ir.module import Module
from shardir.text.printer import print_module
from tests.backends.distributed.launched_job import launch_job
from tests.backends.distributed.native_programs import CHECKS
from tests.backends.distributed.program_comparison import SEPARATOR
from tests.passes.processes import partition_some
from tests.programs.strategies import spmd_modules

IS_LONG_RUN = settings().max_examples > 200
EXAMPLE_COUNT = 400 if IS_LONG_RUN else 40


EXCLUDED_OPERATIONS = (
    *("callback", "pure-callback", "pipeline", "pipeline-call", "staged-pipeline"),
    *("inspect-sharding", "opaque"),
    *("fused", "fused_products"),
    *("checkpoint", "custom-jvp", "custom-partitioning", "custom-vjp", "manual_computation"),
)


def random_programs(strategy: st.SearchStrategy[Module], count: int) -> list[str]:
    """Return texts of random modules, which are the same in every session."""
    texts: list[str] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(module: Module) -> None:
        # Text cannot contain functions of the user, and region operations do not run before
        # inlining.
        if all(op.name not in EXCLUDED_OPERATIONS for op in module.main.body.walk()):
            texts.append(print_module(module))

    collect()
    return texts


def run_programs(texts: list[str], count: int, folder: Path, *backends: str) -> None:
    """Run programs with the backends named in `backends`."""
    path = folder / "programs.txt"
    path.write_text(SEPARATOR.join(texts), "utf-8")
    done = launch_job(
        count, "-m", "tests.backends.distributed.program_comparison", path, *backends, folder=folder
    ).check()
    assert done.out[0] == f"{len(texts)}\n"


REDUCTIONS = [
    f"""\
mesh @m = [a=2, b=3, c=2]

spmd func @f(
  %x: {dtype}[12, 5] of {dtype}[24@a, 5],
) -> ({dtype}[{rows}, 5] of {dtype}[{12 * rows}@(a, b, c), 5]) {{
  %i = axis-index(axes=[b]) : i32[]
  %j = convert(%i) : {dtype}[]
  %k = broadcast(%j, dims=[]) : {dtype}[12, 5]
  %y = add(%x, %k) : {dtype}[12, 5]
  %z = {kind}%y, {dims}axes=[{axes}], op={op}) : {dtype}[{rows}, 5]
  return %z
}}
"""
    for (kind, dims), dtype, op, (axes, size) in product(
        [("all-reduce(", ""), ("reduce-scatter(", "dim=0, ")],
        ["f32", "f16", "bf16", "i32"],
        ["add", "max"],
        [("a", 2), ("b", 3), ("b, a", 6), ("c, b", 6), ("a, b, c", 12)],
    )
    for rows in [12 if kind == "all-reduce(" else 12 // size]
]
"""All reductions of values that differ along some axes and are equal along others."""


def select_part(texts: list[str], part: int) -> list[str]:
    """Return a quarter of the programs, or all of them in long runs."""
    return texts if IS_LONG_RUN else texts[part::4]


@pytest.mark.parametrize(("count", "part"), [pytest.param(2, 0, marks=pytest.mark.long), (3, 1)])
def test_reductions_over_several_processes_match_one_process(
    count: int, part: int, tmp_path: Path
) -> None:
    run_programs(select_part(REDUCTIONS, part), count, tmp_path, "numpy", "native")


@pytest.mark.parametrize(("count", "part"), [(2, 0), pytest.param(4, 1, marks=pytest.mark.long)])
def test_partitioned_programs_match_one_process(count: int, part: int, tmp_path: Path) -> None:
    run_programs(
        select_part(random_programs(partition_some(), EXAMPLE_COUNT), part),
        count,
        tmp_path,
        "numpy",
        "native",
    )


def test_programs_with_collectives_match_one_process(tmp_path: Path) -> None:
    # The results differ between devices that the types declare equal.
    run_programs(random_programs(spmd_modules(), EXAMPLE_COUNT), 3, tmp_path, "numpy")


@pytest.mark.parametrize("count", [2, 4] if IS_LONG_RUN else [2])
def test_checks_of_native_programs_pass(count: int, tmp_path: Path) -> None:
    done = launch_job(
        count, "-m", "tests.backends.distributed.native_programs", folder=tmp_path
    ).check()
    assert done.out == [f"all {len(CHECKS)}\n"] * count
