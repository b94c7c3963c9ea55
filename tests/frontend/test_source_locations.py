"""Source lines and variable names are read from the frames of the user's program."""

import weakref
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax, numpy as snp
from shardir.errors import ShardirError
from shardir.frontend import source_locations
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.pytree import tree
from shardir.frontend.source_locations import with_location
from shardir.ir.module import Loc

X = np.ones((2, 3), np.float32)


def names_of(fun: Any, *args: Any) -> list[str]:
    return [op.results[0].name for op in jit(fun).lower(*args).module.main.body.ops]


def test_an_error_underlines_the_expression(tmp_path: Any) -> None:
    file = tmp_path / "user.py"
    file.write_text("    é = bool(x) + 1\n", "utf-8")
    assert source_locations.underline(Loc(str(file), 1, 10), 7) == (
        f" --> {file}:1:10\n  |\n1 | é = bool(x) + 1\n  |     ^^^^^^^"
    )
    assert source_locations.underline(Loc("<stdin>", 3, 1)) == " --> <stdin>:3:1"


def test_the_code_that_calls_the_command_is_internal(monkeypatch: pytest.MonkeyPatch) -> None:
    script = compile("main()", "/opt/bin/shardir", "exec")
    other = compile("other()", "/opt/bin/other", "exec")
    monkeypatch.setattr(source_locations, "command_callers", {script})
    assert source_locations.is_internal_code(script)
    assert not source_locations.is_internal_code(other)


def test_paths_are_relative_to_the_working_directory(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "user.py").write_text("def f(x):\n    y = x + 1\n    return y\n", "utf-8")
    scope: dict[str, Any] = {}
    code = compile((tmp_path / "user.py").read_text("utf-8"), str(tmp_path / "user.py"), "exec")
    exec(code, scope)
    monkeypatch.chdir(tmp_path)
    loc = jit(scope["f"]).lower(X).module.main.body.ops[-1].loc
    assert loc == Loc("user.py", 2, 9)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    loc = jit(scope["f"]).lower(X).module.main.body.ops[-1].loc
    assert str(loc) == f"{tmp_path}/user.py:2"


def test_names_are_found_through_user_functions() -> None:
    def inner(x: Any) -> Any:
        return x + x

    def outer(x: Any) -> Any:
        return inner(x)

    def f(x: Any) -> Any:
        total = outer(x)
        return total

    assert names_of(f, X) == ["total"]


def test_names_are_found_through_functions_of_this_package() -> None:
    def f(params: Any) -> Any:
        scaled = tree.map(lambda p: p * p, params)
        last = jit(lambda x: x + x)(scaled[0])
        return last

    assert names_of(f, [X, X]) == ["scaled", "scaled.1", "last"]


def test_only_the_last_operation_of_a_line_is_named() -> None:
    def f(x: Any) -> Any:
        y = (x + x) * (x - x)
        return y.sum() + 1

    assert names_of(f, X) == ["0", "1", "y", "2", "3", "4"]


def test_an_underscore_is_not_used_as_a_name() -> None:
    def f(x: Any) -> Any:
        _ = x + x
        return _

    assert names_of(f, X) == ["0"]


def test_variables_are_found_by_their_value() -> None:
    mine = object()
    assert source_locations.find_variable_name(mine) == "mine"
    assert source_locations.find_variable_name(X) == "X"
    assert source_locations.find_variable_name(object()) == ""


def test_the_search_for_a_name_keeps_no_variable_alive() -> None:
    def read_locals() -> dict[str, object]:
        mine = object()
        given = locals()
        assert source_locations.find_variable_name(mine) == "mine"
        return given

    def keep(x: Any) -> Any:
        return lambda: x

    mine = snp.ones(3)
    alive = weakref.ref(mine)
    fun = jit(keep(mine))
    fun()
    del mine
    assert alive() is not None
    del fun
    assert alive() is None
    # A dictionary that the function itself reads stays complete.
    assert "mine" in read_locals()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda f: f(snp.sum, snp.ones(3), axis=True), "sum"),
        (lambda f: f(snp.concatenate, [snp.ones((2, 3)), 1]), "concatenate"),
        (lambda f: f(snp.ones(3).sum, "q"), "sum"),
        (lambda f: f(snp.ones(6).reshape, 4), "reshape"),
        (lambda f: f(sd.random.normal, 1, (3,)), "normal"),
        (lambda f: f(lax.sort, snp.ones(3), dimension=9), "sort"),
        (lambda f: f(sd.config, traceback="off"), ""),
        (lambda f: f(lax.Tolerance, -1), ""),
        (lambda f: f(sd.SingleDeviceSharding, 3), ""),
        (lambda f: f(sd.Mesh, [3], ("x",)), ""),  # The message names the class.
        (lambda f: f(sd.jit(lambda x: x), 1, 2), ""),
        (lambda f: f(lambda: snp.ones(3) + "a"), ""),
    ],
)
def test_the_location_names_the_function_if_neither_message_nor_line_does(
    call: Any, name: str
) -> None:
    def invoke(g: Any, *args: Any, **options: Any) -> Any:
        return g(*args, **options)

    with pytest.raises(ShardirError) as caught:
        call(invoke)
    (arrow,) = (line for line in str(caught.value).splitlines() if "--> " in line)
    assert arrow.partition(", in a call of ")[2] == name


def test_the_location_names_the_function_if_the_line_is_not_available() -> None:
    with pytest.raises(ShardirError) as caught:
        exec("x.sum(axis=True)", {"x": snp.ones(3)})
    assert str(caught.value) == (
        "an axis must be an integer, got True\n --> <string>:1:1, in a call of sum"
    )


def test_a_located_message_is_not_located_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "sum", "located"):
        monkeypatch.setattr(source_locations.UserPosition, "called_name", lambda _, n=name: n)
        text, seen = "wrong", set()
        for _ in range(3):
            text = with_location(text)
            seen.add(text)
        assert len(seen) == 1
