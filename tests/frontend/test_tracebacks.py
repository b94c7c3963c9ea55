"""Tracebacks of the user's errors have the user's frames; those of bugs have all frames."""

import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.numpy as jnp
from shardir.errors import HIDDEN_FRAMES_NOTE, ShardirError
from shardir.frontend.dispatch import jit_function as jit_module
from shardir.frontend.errors import ArgumentError, RecursiveError, SettingError, ShapeError
from shardir.frontend.source_locations import is_internal_code
from shardir.sharding import PartitionSpec as P
from tests.error_assertions import first_line, raw

PROGRAM = """\
import shardir
import shardir.numpy as jnp

def layer(x, w):
    return jnp.dot(x, w)

@shardir.jit
def step(x, w):
    h = layer(x, w)
    return jnp.sum(h)

step(jnp.ones((4, 8)), jnp.ones((4, 8)))
"""

OUTPUT = """\
Traceback (most recent call last):
  File "program.py", line 12, in <module>
    step(jnp.ones((4, 8)), jnp.ones((4, 8)))
  File "program.py", line 9, in step
    h = layer(x, w)
        ^^^^^^^^^^^
  File "program.py", line 5, in layer
    return jnp.dot(x, w)
           ^^^^^^^^^^^^^
shardir.frontend.errors.ShapeError: dot multiplies axis 1 of shape (4, 8) with axis 0 of shape \
(4, 8), but 8 is not 4
 --> program.py:5:12
  |
5 | return jnp.dot(x, w)
  |        ^^^^^^^^^^^^^
The traceback omits frames of shardir; SHARDIR_TRACEBACK=full shows them.
"""


def test_the_traceback_of_a_program_has_its_own_frames(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, cwd=tmp_path)
    shown = done.stderr.replace(f"{tmp_path}/", "")
    # Python 3.13 also marks a call that is a whole statement.
    assert re.sub(r"^    ~+\^+\n", "", shown, count=1, flags=re.MULTILINE) == OUTPUT


UNCAUGHT = {
    "split": "jnp.split(x, 4)",
    "array_split": "jnp.array_split(x, 0)",
    "pad": "jnp.pad(x, ((1, 2), (3, 4)))",
    "einsum": "jnp.einsum('ij,jk', x, x)",
    "linspace": "jnp.linspace(0, 1, -1)",
    "searchsorted": "jnp.searchsorted(x, x, side='middle')",
    "interp": "jnp.interp(x, x, jnp.ones(2))",
    "at": "x.at[0, 0].set(1)",
    "bool": "bool(x)",
    "iter": "iter(jnp.float32(1))",
    "conv": "sd.lax.conv(x, x, (1,), 'SAME')",
    "tree.map": "sd.tree.map(lambda a, b: a, [1], [1, 2])",
    "adam": "sd.optim.adam('x')",
    "ravel_pytree": "sd.flatten_util.ravel_pytree(object())",
    "config.update": "sd.config.update('unknown', 3)",
}
"""Eager calls with an error in functions of the package that are no boundaries."""

UNCAUGHT_PROGRAM = """\
import sys, threading
import shardir as sd, shardir.numpy as jnp
import shardir.flatten_util, shardir.optim
x = jnp.arange(6.0)
calls = {calls}
for call in calls:
    code = compile(call, call, "eval")
    try:
        eval(code)
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        print("---", file=sys.stderr)
thread = threading.Thread(target=lambda: jnp.split(x, 4))
thread.start()
thread.join()
"""


def test_uncaught_errors_of_eager_calls_have_the_frames_of_the_user(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(UNCAUGHT_PROGRAM.format(calls=list(UNCAUGHT.values())), encoding="utf-8")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0
    *texts, in_thread = done.stderr.split("---\n")
    for call, text in zip(UNCAUGHT.values(), texts, strict=True):
        frames = [line.strip() for line in text.splitlines() if line.startswith("  File ")]
        assert frames == [
            f'File "{file}", line 9, in <module>',
            f'File "{call}", line 1, in <module>',
        ], text
        assert text.endswith(f"{HIDDEN_FRAMES_NOTE}\n"), text
    assert "concatenation.py" not in in_thread
    assert f'File "{file}", line 13, in <lambda>' in in_thread


IN_IPYTHON = """\
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
shell.run_cell("import shardir, shardir.numpy as jnp\\nx = jnp.arange(6.0)")
shell.run_cell("jnp.split(x, 4)")
shell.run_cell("1 / 0")
shell.run_cell("shardir.config.update('traceback', 'full'); jnp.split(x, 4)")
print("-" * 75)
shell.execution_count = 2
for cell in (
    "def f(x):\\n    y = x + 1\\n    return y @ x[1:]",
    "lowered = shardir.jit(lambda x: x + 1).lower(x)",
    "print(lowered.as_text(locations=True)); print(lowered.report())",
    "print(lowered.report().data.files)",
    "try: f(x)\\nexcept shardir.ShardirError as error: print(error)",
):
    shell.run_cell(cell, store_history=True)
"""


def test_ipython_shows_the_frames_and_cells_of_the_user(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    done = subprocess.run(
        [sys.executable, "-c", IN_IPYTHON],
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    _, hidden, divided, full, cells = done.stdout.split(f"{75 * '-'}\n")
    assert "concatenation.py" not in hidden
    assert "jnp.split(x, 4)" in hidden
    assert f"{HIDDEN_FRAMES_NOTE}\n" in hidden
    assert "ZeroDivisionError: division by zero" in divided
    assert "interactiveshell.py" not in done.stdout
    assert "concatenation.py" in full
    assert 'loc("In[3]":1:33)' in cells
    assert "\nIn[3]:1  6 " in cells
    lines = "'lowered = shardir.jit(lambda x: x + 1).lower(x)\\n'"
    assert f"FileRecord(name='In[3]', text={lines})" in cells
    assert (" --> Cell In[2], line 3\n  |\n3 | return y @ x[1:]\n  |        ^^^^^^^^^\n") in cells
    assert "ipython-input" not in cells


def test_uncaught_errors_have_all_frames_if_the_setting_is_full() -> None:
    program = "import shardir.numpy as jnp; jnp.split(jnp.ones(6), 4)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "SHARDIR_TRACEBACK": "full"},
        capture_output=True,
        text=True,
    )
    assert "concatenation.py" in done.stderr
    assert HIDDEN_FRAMES_NOTE not in done.stderr


def multiply(x: Any) -> Any:
    return jnp.dot(x, jnp.ones((3, 3)))


def multiply_to_scalar(x: Any) -> Any:
    return multiply(x).sum()


def map_shards(x: Any) -> Any:
    mesh = shardir.make_mesh((2,), ("data",))
    return shardir.shard_map(multiply, mesh=mesh, in_specs=P("data"), out_specs=P("data"))(x)


X = np.ones((4, 4), np.float32)

CALLS: dict[str, tuple[Callable[[], object], list[str]]] = {
    "function": (lambda: multiply(X), ["multiply"]),
    "jit": (lambda: shardir.jit(multiply)(X), ["multiply"]),
    "lower": (lambda: shardir.jit(multiply).lower(X), ["multiply"]),
    "make_ir": (lambda: shardir.make_ir(multiply)(X), ["multiply"]),
    "eval_shape": (lambda: shardir.eval_shape(multiply, X), ["multiply"]),
    "jit of jit": (lambda: shardir.jit(shardir.jit(multiply))(X), ["multiply"]),
    "grad": (lambda: shardir.grad(multiply_to_scalar)(X), ["multiply_to_scalar", "multiply"]),
    "jit of grad": (
        lambda: shardir.jit(shardir.grad(multiply_to_scalar))(X),
        ["multiply_to_scalar", "multiply"],
    ),
    "vmap": (lambda: shardir.vmap(multiply)(X[None]), ["multiply"]),
    "jvp": (lambda: shardir.jvp(multiply, (X,), (X,)), ["multiply"]),
    "vjp": (lambda: shardir.vjp(multiply, X), ["multiply"]),
    "linearize": (lambda: shardir.linearize(multiply, X), ["multiply"]),
    "linear_transpose": (lambda: shardir.linear_transpose(multiply, X), ["multiply"]),
    "closure_convert": (lambda: shardir.closure_convert(raw(7), X), []),
    "jacfwd": (lambda: shardir.jacfwd(multiply)(X), ["multiply"]),
    "hessian": (lambda: shardir.hessian(multiply)(X), ["multiply"]),
    "checkpoint": (lambda: shardir.jit(shardir.checkpoint(multiply))(X), ["multiply"]),
    "custom_vjp": (lambda: shardir.custom_vjp(multiply)(X), []),
    "shard_map": (lambda: map_shards(X), ["map_shards", "multiply"]),
    "pmap": (lambda: shardir.pmap(multiply)(X[None]), ["multiply"]),
    "scan": (
        lambda: shardir.lax.scan(lambda c, x: (c, multiply(x)), 0.0, X[None]),
        ["<lambda>", "multiply"],
    ),
    "cond": (lambda: shardir.lax.cond(True, multiply, multiply, X), ["multiply"]),
    "operator": (lambda: jnp.ones((4, 4)) @ jnp.ones((3, 3)), []),
    "method": (lambda: jnp.ones((4, 4)).reshape(3, 3), []),
    "call of a compiled function": (
        lambda: shardir.jit(jnp.sin).lower(X).compile()(jnp.ones(3)),
        [],
    ),
    "make_mesh": (lambda: shardir.make_mesh((3, 100), ("a", "b")), []),
    "device_put": (lambda: shardir.device_put("text"), []),
    "array": (lambda: jnp.array("text"), []),
}


@pytest.mark.parametrize("name", CALLS)
def test_frames_of_the_package_are_hidden(name: str) -> None:
    call, frames = CALLS[name]
    with pytest.raises(ShardirError) as caught:
        call()
    shown = traceback.extract_tb(caught.value.__traceback__)
    assert [step.name for step in shown][1:] == ["<lambda>", *frames]
    assert caught.value.__notes__ == [HIDDEN_FRAMES_NOTE]


def test_the_setting_shows_all_frames() -> None:
    with shardir.config(traceback="full"), pytest.raises(ShapeError) as caught:
        shardir.jit(multiply)(X)
    steps = [f.f_code for f, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert sum(map(is_internal_code, steps)) > 5
    assert not hasattr(caught.value, "__notes__")


def test_the_setting_does_not_trace_functions_again() -> None:
    count = 0

    @shardir.jit
    def counted(x: shardir.Array) -> shardir.Array:
        nonlocal count
        count += 1
        return x

    counted(X)
    with shardir.config(traceback="full"):
        counted(X)
    assert count == 1


def test_the_setting_has_two_values() -> None:
    with pytest.raises(SettingError) as caught:
        shardir.config(traceback="off")
    assert first_line(caught) == "the setting traceback is 'off'; it must be 'short' or 'full'"


def test_an_endless_recursion_of_a_jitted_function_shows_the_frames_of_the_user() -> None:
    @shardir.jit
    def endless(x: Any) -> Any:
        return endless(x)

    with pytest.raises(RecursiveError) as caught:
        endless(X)
    names = {step.name for step in traceback.extract_tb(caught.value.__traceback__)[1:]}
    assert names == {"endless"}
    assert caught.value.__notes__ == [HIDDEN_FRAMES_NOTE]


def test_an_error_of_the_user_keeps_its_type_and_frames() -> None:
    def fail(x: Any) -> Any:
        raise KeyError("missing")

    with pytest.raises(KeyError) as caught:
        shardir.jit(fail)(X)
    names = [step.name for step in traceback.extract_tb(caught.value.__traceback__)]
    assert names == ["test_an_error_of_the_user_keeps_its_type_and_frames", "fail"]


def test_an_error_of_numpy_in_the_users_function_keeps_the_frames_of_numpy() -> None:
    def fail(x: Any) -> Any:
        return np.linalg.inv(np.zeros((2, 2)))

    with pytest.raises(np.linalg.LinAlgError) as caught:
        shardir.jit(fail)(X)
    names = [step.name for step in traceback.extract_tb(caught.value.__traceback__)]
    assert names[1:3] == ["fail", "inv"]


def test_an_error_keeps_its_cause_without_frames_of_the_package() -> None:
    def fail(x: Any) -> Any:
        try:
            return multiply(x)
        except ShapeError as error:
            raise RuntimeError("the layer does not fit") from error

    with pytest.raises(RuntimeError) as caught:
        shardir.jit(fail)(X)
    cause = caught.value.__cause__
    assert isinstance(cause, ShapeError)
    assert [step.name for step in traceback.extract_tb(cause.__traceback__)] == ["fail", "multiply"]


def test_an_argument_error_keeps_the_error_of_numpy_as_its_cause() -> None:
    wrong: Any = object()
    with pytest.raises(ArgumentError) as caught:
        jnp.reshape(X, wrong)
    text = "".join(traceback.format_exception(caught.value))
    assert "The above exception was the direct cause" in text
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_bug_keeps_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("bug")

    # The code of a function of the package, with another name.
    inside = eval(
        compile("lambda *args, **options: broken()", jit_module.__file__, "eval"), {"broken": 0}
    )
    inside.__globals__["broken"] = eval(
        compile("lambda: (_ for _ in ()).throw(RuntimeError('bug'))", jit_module.__file__, "eval")
    )
    monkeypatch.setattr(jit_module, "trace_call", inside)
    with pytest.raises(RuntimeError, match="bug") as caught:
        shardir.jit(multiply)(X)
    names = [step.name for step in traceback.extract_tb(caught.value.__traceback__)]
    assert names[1:5] == ["__call__", "_call_slow_path", "_call_placed", "_lower"]
    assert not hasattr(caught.value, "__notes__")


def test_an_error_of_a_deep_stack_keeps_its_frames() -> None:
    """Removing them calls functions, which would raise further errors there."""

    def descend(x: Any) -> Any:
        return descend(x)

    with pytest.raises(RecursionError) as caught:
        shardir.jit(descend)(X)
    assert getattr(caught.value, "__notes__", []) == []
