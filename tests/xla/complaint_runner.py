"""Explains programs of complaints in a process with eight devices, and applies the remedies.

Arguments: a folder for the programs, and the names of complaints. The output is JSON.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding

from shardir.cost.communication import sum_collectives
from shardir.hlo.collectives import list_hlo_collectives
from shardir.hlo.parser import parse_hlo
from shardir.interop.jax import explain_xla
from shardir.passes.explain.xla.xla_communication import XlaCommunication
from tests.xla.complaints import COMPLAINTS, Complaint
from tests.xla.further_complaints import FURTHER_COMPLAINTS, OWN_PROGRAMS

PROGRAMS = {**COMPLAINTS, **FURTHER_COMPLAINTS, **OWN_PROGRAMS}


def load(file: Path, text: str, mesh: jax.sharding.Mesh) -> dict[str, Any]:
    file.write_text(text, encoding="utf-8")
    names: dict[str, Any] = {"mesh": mesh}
    exec(compile(text, str(file), "exec"), names)
    return names


def arrays(names: dict[str, Any], mesh: jax.sharding.Mesh) -> list[Any]:
    rng = np.random.default_rng(0)
    found = []
    for shape, spec, *limit in names["arguments"]:
        value = (
            np.asarray(rng.integers(0, limit[0], shape), np.int32)
            if limit
            else rng.standard_normal(shape).astype(np.float32)
        )
        found.append(jax.device_put(value, NamedSharding(mesh, spec)))
    return found


def compile_and_run(names: dict[str, Any], args: list[Any]) -> tuple[int, Any]:
    lowered = jax.jit(names["f"]).lower(*args)
    compiled = lowered.compile()
    module = parse_hlo(compiled.as_text() or "")
    sent = sum_collectives(list_hlo_collectives(module).rows).sent
    return sent, jax.tree.map(np.asarray, compiled(*args))


def run_in_loop(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `f` in each iteration of a loop, with other numbers."""

    def looped(*args: Any) -> Any:
        def body(scale: Any, _: Any) -> Any:
            numbers = [x * scale if x.dtype == np.float32 else x for x in args]
            return scale + 1, f(*numbers)

        return jax.lax.scan(body, np.float32(1), None, length=3)

    return looped


def list_causes(f: Callable[..., Any], args: list[Any]) -> list[tuple[str, str]]:
    report = explain_xla(jax.jit(f).lower(*args).compile())
    assert isinstance(report, XlaCommunication)
    return [(cause.kind.name, cause.operation) for cause in report.causes]


def check(name: str, complaint: Complaint, folder: Path) -> dict[str, Any]:
    mesh = jax.make_mesh(complaint.mesh, ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    file = folder / f"{name.replace(' ', '_')}.py"
    with jax.set_mesh(mesh), jax.threefry_partitionable(complaint.partitionable):
        names = load(file, complaint.program, mesh)
        args = arrays(names, mesh)
        before, expected = compile_and_run(names, args)
        report = explain_xla(jax.jit(names["f"]).lower(*args), compilations=16)
        in_loop = list_causes(run_in_loop(names["f"]), args)
        lines = complaint.program.splitlines()
        remedies: list[Any] = []
        if isinstance(report, XlaCommunication):
            pairs = list(zip(report.communication.rows, report.causes, strict=True))
        else:
            pairs = [pair for line in report.lines for pair in line.collectives]
            found: list[tuple[Any, ...]] = [line.remedies for line in report.lines if line.remedies]
            remedies = [*min(found, key=lambda each: each[0].sent or 0)] if found else []
        text = complaint.program
        for each in remedies:
            start = sum(len(line) + 1 for line in lines[: each.loc.line - 1])
            head, tail = text[:start], text[start:]
            assert each.old in tail, (each.old, tail)
            text = head + tail.replace(each.old, each.new, 1)
        with jax.threefry_partitionable(True):
            remedied = (
                compile_and_run(load(file.with_suffix(".remedied.py"), text, mesh), args)[0]
                if remedies
                else None
            )
        if complaint.changed:
            head, _, _ = complaint.program.rpartition("    return ")
            text = f"{head}{complaint.changed}\n"
    with jax.set_mesh(mesh), jax.threefry_partitionable(True):
        changed = load(file.with_suffix(".changed.py"), text, mesh)
        after, result = compile_and_run(changed, args)
    close = jax.tree.map(lambda a, b: bool(np.allclose(a, b, 1e-4, 1e-4)), expected, result)
    return {
        "before": before,
        "after": after,
        "predicted": remedies[0].sent if remedies else None,
        "remedied": remedied,
        "causes": [
            (cause.kind.name, cause.operation, lines[row.loc.line - 1] if row.loc else "")
            for row, cause in pairs
        ],
        "causes in a loop": in_loop,
        "equal": all(jax.tree.leaves(close)),
        "text": str(report),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    print(json.dumps({name: check(name, PROGRAMS[name], folder) for name in sys.argv[2:]}))


if __name__ == "__main__":
    main()
