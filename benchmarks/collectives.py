"""Compare the collectives of programs with those of the same programs in JAX.

The table shows, for every program, the number of collectives and the bytes of their results on one
device. JAX runs in a separate process with eight simulated devices; its all-reduces are counted by
tensor, since XLA merges them. Needs the extra `jax`.

    python benchmarks/collectives.py [part of a name ...]
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
from communicated import Array, Library, Program, programs

Found = list[tuple[str, int]]
"""Return the kind and the bytes of each collective."""

SHORT = {
    "all-reduce": "AR",
    "all-gather": "AG",
    "all-to-all": "A2A",
    "reduce-scatter": "RS",
    "collective-permute": "CP",
}
SIZES = {"pred": 1, "s8": 1, "u8": 1, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8,
         "c64": 8, "f64": 8, "c128": 16}  # fmt: skip
RESULT = re.compile(rf"= (\(.*?\)|\S+) ({'|'.join(SHORT)})(-start)?\(")
TENSOR = re.compile(r"(\w+)\[([\d,]*)\]")


def main(wanted: list[str]) -> int:
    chosen = [p for p in programs() if not wanted or any(word in p.name for word in wanted)]
    if os.environ.get("COLLECTIVES_OF") == "jax":
        print(json.dumps([found_by_jax(program) for program in chosen]))
        return 0
    environment = {
        **os.environ,
        "COLLECTIVES_OF": "jax",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    answer = subprocess.run([sys.executable, __file__, *wanted], env=environment, check=True,
                            capture_output=True, text=True)  # fmt: skip
    theirs = json.loads(answer.stdout.splitlines()[-1])
    worse, less = 0, 0
    table = Table("program", "shardir", "bytes", "JAX", "bytes", "best", "", title="collectives")
    group = chosen[0].group if chosen else ""
    for program, jax_found in zip(chosen, theirs, strict=True):
        if program.group != group:
            table.add_section()
            group = program.group
        ours = found_by_shardir(program)
        verdict = judged(program, ours, jax_found)
        worse += verdict != "ok"
        less += is_less(ours, jax_found)
        best = "" if program.best < 0 else str(program.best)
        if program.best_bytes is not None:
            best += f" ({program.best_bytes:,} B)"
        table.add_row(escape(program.name), *shown(ours), *shown(jax_found), best, verdict)
    Console(width=140).print(table)
    print(
        f"{len(chosen)} programs: {less} send fewer bytes than JAX, "
        f"{worse} are not as good as the best known or JAX"
    )
    return 0


def shown(found: Found | str) -> tuple[str, str]:
    """Return the kinds with their counts, and the bytes."""
    if isinstance(found, str):
        return escape(found[:40]), "-"
    kinds = Counter(SHORT[kind] for kind, _ in found)
    text = " ".join(f"{kind} {n}" for kind, n in kinds.items()) or "0"
    return text, f"{sum(size for _, size in found):,}"


def judged(program: Program, ours: Found | str, theirs: Found | str) -> str:
    if isinstance(ours, str):
        return "error"
    size = sum(n for _, n in ours)
    if program.best_bytes is not None and size > program.best_bytes:
        return "worse than best"
    if program.best >= 0 and len(ours) > program.best and program.best_bytes is None:
        return "worse than best"
    if not isinstance(theirs, str) and size > sum(n for _, n in theirs):
        return "more than JAX"
    return "ok"


def is_less(ours: Found | str, theirs: Found | str) -> bool:
    if isinstance(ours, str) or isinstance(theirs, str):
        return False
    return sum(n for _, n in ours) < sum(n for _, n in theirs)


def found_by_shardir(program: Program) -> Found | str:
    import shardir as sd
    import shardir.lax
    import shardir.nn
    import shardir.numpy
    import shardir.random
    from shardir.cost.communication import list_collectives
    from shardir.frontend.shardings.devices import virtual_devices
    from shardir.sharding import NamedSharding, PartitionSpec

    mesh = sd.make_mesh((4, 2), ("x", "y"), devices=virtual_devices(8))
    library = Library(sd, sd.numpy, sd.lax, sd.nn, sd.random,
                      lambda spec: NamedSharding(mesh, PartitionSpec(*spec)))  # fmt: skip
    try:
        lowered = lowered_by(library, program, {"uneven": "pad"} if program.uneven else {})
        module = lowered.after("dce")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [(c.kind, c.nbytes) for c in list_collectives(module) for _ in range(c.executions or 1)]


def found_by_jax(program: Program) -> Found | str:
    import jax
    import jax.numpy

    automatic = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=automatic)
    library = Library(
        jax, jax.numpy, jax.lax, jax.nn, jax.random,
        lambda spec: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)),
    )  # fmt: skip
    try:
        text = lowered_by(library, program, {}).compile().as_text()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    found: Found = []
    for match in RESULT.finditer(text):
        tensors = [size_of(*t) for t in TENSOR.findall(match[1])]
        if match[3]:
            tensors = tensors[len(tensors) // 2 :]
        if match[2] == "all-reduce":
            found += [(match[2], size) for size in tensors]
        else:
            found.append((match[2], sum(tensors)))
    return found


def size_of(dtype: str, shape: str) -> int:
    return SIZES.get(dtype, 4) * prod(map(int, shape.split(","))) if shape else SIZES.get(dtype, 4)


def lowered_by(library: Library, program: Program, options: dict[str, Any]) -> Any:
    if program.out is not None:
        options = {**options, "out_shardings": library.sharding(program.out)}
    function = library.top.jit(lambda *args: program.run(library, *args), **options)
    return function.lower(*(struct(library, array) for array in program.arguments))


def struct(library: Library, array: Array) -> Any:
    sharding = library.sharding(array.spec)
    return library.top.ShapeDtypeStruct(array.shape, np.dtype(array.dtype), sharding=sharding)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
