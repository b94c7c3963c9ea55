"""`explain_xla` explains programs that JAX compiled for eight devices."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardir.frontend.errors import ArgumentError
from shardir.frontend.interop.xla.programs import explain_xla
from tests.optional_dependencies import require

SCRIPT = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from shardir.interop.jax import explain_xla

mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
w = jax.device_put(jnp.ones((6, 16, 16)), NamedSharding(mesh, P(None, "model", None)))
x = jax.device_put(jnp.ones((32, 16)), NamedSharding(mesh, P("data", "model")))

def f(w, x):
    def body(h, w):
        return jnp.tanh(h @ w), None
    return jax.lax.scan(body, x, w)[0]

lowered = jax.jit(f).lower(w, x)
report = explain_xla(lowered, compilations=0)
again = explain_xla(lowered.compile(), lowered, compilations=0)
assert again.lines == report.lines
rows = report.xla.communication.rows
print([(row.kind, row.axes, row.executions, row.nbytes) for row in rows])
print([(row.kind, row.axes, row.executions, row.nbytes) for row in report.planned.rows])
print([line.line.rpartition("/")[2] for line in report.lines], report.lines[0].extra)
alone = explain_xla(lowered.compile(), mesh={"data": 4, "model": 2})
assert explain_xla(lowered.compile()) == alone
assert alone.communication.total == report.xla.communication.total
"""


def test_collectives_of_loops_are_compared_with_the_plan(tmp_path: Path) -> None:
    require("jax")
    script = tmp_path / "loop.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout
        == """\
[('all-reduce', ('model',), 6, 512)]
[('reduce-scatter', ('model',), 6, 256)]
['loop.py:16'] 1536
"""
    )


CALLBACKS = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
from jax.experimental import io_callback
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from shardir.interop.jax import explain_xla

mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
x = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P("x")))

def f(x, ordered):
    total = x.sum(0)
    io_callback(lambda part: None, None, total, ordered=ordered)
    io_callback(lambda whole: None, None, x, ordered=ordered)
    return total * 2

for ordered in (False, True):
    lowered = jax.jit(f, static_argnums=1).lower(x, ordered)
    assert ("!stablehlo.token" in lowered.as_text()) == ordered
    report = explain_xla(lowered, compilations=0)
    for rows in (report.xla.communication.rows, report.planned.rows):
        print(sorted((row.kind, row.axes, row.nbytes) for row in rows))
"""


def test_programs_with_callbacks_are_compared_with_the_plan(tmp_path: Path) -> None:
    """An ordered callback takes and returns a token, which the plan ignores."""
    require("jax")
    script = tmp_path / "callbacks.py"
    script.write_text(CALLBACKS, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [("all-gather", ("x",), 128), ("all-reduce", ("x",), 16)]
    assert done.stdout == f"{rows}\n" * 4


@pytest.mark.parametrize(("program", "text"), [(3, "3"), (None, "None")])
def test_other_objects_are_refused(program: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        explain_xla(program)
    assert str(caught.value).startswith(
        "explain_xla takes the result of jax.jit(f).lower(...) or of compile(), or HLO text, got "
        + text
    )
