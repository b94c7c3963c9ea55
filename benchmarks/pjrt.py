"""Compare programs on devices of PJRT with the same programs on the CPU backend.

The programs are those of `collectives.py` and `cpu.py`, on eight devices of XLA's CPU platform. The
tables show whether the values are equal to rounding, and for the first ones whether XLA's optimized
program has the collectives of shardir's program: their kinds, groups and bytes. Needs the extra
`jax`.

    python benchmarks/pjrt.py [part of a name ...]
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
import cpu_library
import cpu_workloads
from communicated import Library, Program, programs

DEVICES = 8
XLA_FLAGS = f"--xla_force_host_platform_device_count={DEVICES}"
MAX_RELATIVE_ERROR = 1e-4
"""The largest accepted difference, relative to the largest element of a result."""

Counted = Counter[tuple[str, tuple[str, ...]]]
"""Bytes per kind of collective and axes (or description of the groups)."""


@dataclass(frozen=True)
class Comparison:
    """The largest relative error of a program, and its collectives before and after XLA."""

    error: float
    ours: Counted
    theirs: Counted
    arrays: tuple[int, int]
    """The numbers of communicated arrays."""

    @property
    def verdict(self) -> str:
        """Return what XLA did with the collectives."""
        if self.theirs - self.ours:
            return "added"
        return "same" if self.ours == self.theirs and self.arrays[0] == self.arrays[1] else "fewer"


def collective_programs() -> list[Program]:
    """Return the programs of `collectives.py`."""
    return programs()


def compare_program(program: Program) -> Comparison:
    """Run a program of `collectives.py` on both backends."""
    from shardir.backends.pjrt.program_text import PIPELINE, write_program
    from shardir.passes.pipeline import Pipeline

    results = []
    for kind in ("cpu", "pjrt"):
        library = communicated_library(kind)
        options: dict[str, Any] = {"uneven": "pad"} if program.uneven else {}
        if program.out is not None:
            options["out_shardings"] = library.sharding(program.out)
        function = library.top.jit(partial(program.run, library), **options)
        arguments = [
            library.top.device_put(array, library.sharding(struct.spec))
            for array, struct in zip(draw_arguments(program), program.arguments, strict=True)
        ]
        lowered = function.lower(*arguments)
        results.append(read_leaves(function(*arguments)))
    text = write_program(Pipeline.parse(PIPELINE)(lowered.after("dce")), {})
    mesh = dict(lowered.module.meshes[0].axes) if lowered.module.meshes else {}
    ours, our_arrays = count_collectives(translate_to_hlo(text), mesh)
    theirs, their_arrays = count_collectives(lowered.compile().as_text("schedule"), mesh)
    return Comparison(largest_error(*results), ours, theirs, (our_arrays, their_arrays))


def translate_to_hlo(text: str) -> str:
    """Return the HLO text of a StableHLO program before XLA optimizes it."""
    from jaxlib import _jax

    computation = _jax.mlir.mlir_module_to_xla_computation(text, False, False)
    return str(computation.get_hlo_module().to_string())


def count_collectives(text: str, mesh: dict[str, int]) -> tuple[Counted, int]:
    """Return the bytes of the collectives of an HLO program, and the number of their arrays."""
    from shardir.hlo.collectives import list_hlo_collectives
    from shardir.hlo.parser import parse_hlo

    found, counted = list_hlo_collectives(parse_hlo(text), mesh), Counted()
    for row in found.rows:
        counted[row.kind, row.axes] += row.nbytes * (row.executions or 1)
    return counted, found.executed_arrays


def communicated_library(kind: str) -> Library:
    import shardir as sd
    import shardir.lax
    import shardir.nn
    import shardir.numpy
    import shardir.random
    from shardir.sharding import NamedSharding, PartitionSpec

    mesh = sd.make_mesh((4, 2), ("x", "y"), devices=sd.devices(kind))
    return Library(sd, sd.numpy, sd.lax, sd.nn, sd.random,
                   lambda spec: NamedSharding(mesh, PartitionSpec(*spec)))  # fmt: skip


def draw_arguments(program: Program) -> Iterator[Any]:
    """Yield small random arguments; integers are valid positions of all programs."""
    generator = np.random.default_rng(0)
    for each in program.arguments:
        if np.dtype(each.dtype).kind == "f":
            yield (0.1 * generator.standard_normal(each.shape)).astype(each.dtype)
        else:
            yield generator.integers(0, 16, each.shape).astype(each.dtype)


def read_leaves(results: object) -> list[Any]:
    import shardir as sd

    return [np.asarray(each) for each in sd.tree.leaves(results)]


def largest_error(wanted: list[Any], found: list[Any]) -> float:
    """Return the largest difference relative to the largest element of its result."""
    errors = [0.0]
    for a, b in zip(wanted, found, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if a.size:
            a, b = a.astype(np.complex128), b.astype(np.complex128)
            errors.append(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)))
    return max(errors)


class PJRTNamespace:
    """The names of shardir, where devices are those of PJRT."""

    def __init__(self) -> None:
        import shardir as sd

        self._names = sd
        self.devices = partial(sd.devices, "pjrt")
        self.pmap = partial(sd.pmap, backend="pjrt")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._names, name)


def workload_library(kind: str) -> cpu_library.Library:
    library = cpu_library.shardir()
    if kind == "cpu":
        return library
    names = PJRTNamespace()

    def mesh_of(shape: tuple[int, ...], axes: tuple[str, ...]) -> Any:
        return names.Mesh(np.array(names.devices()[: int(np.prod(shape))]).reshape(shape), axes)

    return replace(library, top=names, mesh_of=mesh_of)


def compare_workload(make: Callable[[cpu_library.Library], Callable[[], Any]]) -> float:
    """Return the largest relative error of a workload of `cpu.py`."""
    return largest_error(*(read_leaves(make(workload_library(kind))()) for kind in ("cpu", "pjrt")))


def main(wanted: list[str]) -> int:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {XLA_FLAGS}"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

    def is_wanted(name: str) -> bool:
        return not wanted or any(word in name for word in wanted)

    console, wrong = Console(width=140), 0
    table = Table("program", "error", "ours", "bytes", "XLA's", "bytes", "", title="collectives")
    verdicts: Counter[str] = Counter()
    for program in filter(lambda each: is_wanted(each.name), collective_programs()):
        print(program.name, file=sys.stderr)
        found = compare_program(program)
        wrong += not found.error <= MAX_RELATIVE_ERROR
        verdicts[found.verdict] += 1
        table.add_row(escape(program.name), f"{found.error:.0e}", *describe(found.ours),
                      *describe(found.theirs), found.verdict)  # fmt: skip
    console.print(table)
    print(f"{verdicts.total()} programs: " + ", ".join(f"{n} {v}" for v, n in verdicts.items()))
    table = Table("workload", "error", title="CPU workloads")
    for workload in filter(lambda each: is_wanted(each.name), cpu_workloads.workloads()):
        error = compare_workload(workload.make)
        print(f"{workload.name}: {error:.0e}", file=sys.stderr)
        wrong += not error <= MAX_RELATIVE_ERROR
        table.add_row(escape(workload.name), f"{error:.0e}")
    console.print(table)
    print(f"{wrong} have other values")
    return int(wrong > 0 or verdicts["added"] > 0.05 * verdicts.total())


def describe(counted: Counted) -> tuple[str, str]:
    """Return the kinds with their axes, and the bytes."""
    text = " ".join(f"{kind}({', '.join(axes)})" for kind, axes in counted)
    return escape(text), f"{counted.total():,}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
