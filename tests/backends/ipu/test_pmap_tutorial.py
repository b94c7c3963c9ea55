"""The programs of Graphcore's tutorial on `pmap` over IPUs, on CPU devices and emitted.

https://github.com/graphcore-research/jax-experimental: examples/pmap_quickstart.ipynb. The expected
numbers are those that its cells show.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir import lax, tree_util
from shardir.backends.ipu.host_model import build
from shardir.backends.ipu.target import program_text

Program = Callable[..., tuple[Any, ...]]
DATA = np.arange(12, dtype=np.float32).reshape(4, 3)
DEVICES = 4


def f32_array(rows: list[list[float]]) -> np.ndarray[Any, Any]:
    return np.array(rows, np.float32)


RULE_30_PICTURE = """\
                    *
                   ***
                  **  *
                 ** ****
                **  *   *
               ** **** ***
              **  *    *  *
             ** ****  ******
            **  *   ***     *
           ** **** **  *   ***
          **  *    * **** **  *
         ** ****  ** *    * ****
        **  *   ***  **  ** *   *
       ** **** **  *** ***  ** ***
      **  *    * ***   *  ***  *  *
     ** ****  ** *  * *****  *******
    **  *   ***  **** *    ***      *
   ** **** **  ***    **  **  *    ***
  **  *    * ***  *  ** *** ****  **  *
 ** ****  ** *  ******  *   *   *** ****
 *  *   ***  ****     **** *** **   *
"""


def devices(count: int) -> list[Any]:
    return list(sd.devices()[:count])


def square() -> Any:
    return sd.pmap(lambda x: x**2, devices=devices(4)).lower(DATA)


def normalise() -> Any:
    @partial(sd.pmap, axis_name="i", devices=devices(2))
    def normalise(x: Any) -> Any:
        return x / lax.psum(x, axis_name="i")

    return normalise.lower(DATA[:2])


def normalise_by_mean() -> Any:
    @partial(sd.pmap, axis_name="i", devices=list(sd.devices()[2:4]))
    def normalise(x: Any) -> Any:
        return x / lax.pmean(x, "i")

    return normalise.lower(DATA[2:])


def rows_and_columns() -> Any:
    @partial(sd.pmap, axis_name="rows")
    @partial(sd.pmap, axis_name="cols")
    def normalise(x: Any) -> Any:
        return x / lax.psum(x, "rows"), x / lax.psum(x, "cols"), x / lax.psum(x, ("rows", "cols"))

    return normalise.lower(np.arange(4, dtype=np.float32).reshape(2, 2))


def send_right(x: Any) -> Any:
    return lax.ppermute(x, "i", [(i, (i + 1) % DEVICES) for i in range(DEVICES)])


def send_left(x: Any) -> Any:
    return lax.ppermute(x, "i", [((i + 1) % DEVICES, i) for i in range(DEVICES)])


def update_board(initial_board: Any) -> Any:
    left, right, center = initial_board[:-2], initial_board[2:], initial_board[1:-1]
    return lax.bitwise_xor(left, lax.bitwise_or(center, right))


def initial_board() -> np.ndarray[Any, Any]:
    start = np.zeros(40, bool)
    start[20] = True
    return start.reshape(DEVICES, -1)


def rule_30() -> Any:
    @partial(sd.pmap, axis_name="i", devices=devices(4))
    def step(piece: Any) -> Any:
        left, right = piece[:1], piece[-1:]
        right, left = send_left(left), send_right(right)
        return update_board(jnp.concatenate([left, piece, right]))

    return step.lower(initial_board())


PROGRAMS = (square, normalise, normalise_by_mean, rows_and_columns, rule_30)


def compiled_for_cpu(lowered: Any) -> Program:
    """Return a function that runs a program on CPU devices like an emitted program."""
    compiled = lowered.compile()

    def run(*args: Any) -> tuple[Any, ...]:
        return tuple(map(np.asarray, tree_util.tree_leaves(compiled(*args))))

    return run


@pytest.fixture(scope="module", params=["cpu", "emitted"])
def programs(request: pytest.FixtureRequest) -> Mapping[str, Program]:
    if request.param == "cpu":
        return {f.__name__: compiled_for_cpu(f()) for f in PROGRAMS}
    return build({f.__name__: program_text(f().emission("ipu"), {}) for f in PROGRAMS})


def test_pmap_squares_on_each_device(programs: Mapping[str, Program]) -> None:
    (once,) = programs["square"](DATA)
    np.testing.assert_array_equal(once, [[0, 1, 4], [9, 16, 25], [36, 49, 64], [81, 100, 121]])
    (twice,) = programs["square"](once)
    np.testing.assert_array_equal(twice[3], [6561, 10000, 14641])


def test_psum_normalises_across_devices(programs: Mapping[str, Program]) -> None:
    (normal,) = programs["normalise"](DATA[:2])
    np.testing.assert_array_equal(normal, f32_array([[0, 0.2, 0.2857143], [1, 0.8, 0.71428573]]))
    np.testing.assert_array_equal(normal.sum(0), [1, 1, 1])


def test_nested_pmaps_reduce_rows_and_columns(programs: Mapping[str, Program]) -> None:
    rows, columns, both = programs["rows_and_columns"](np.arange(4, dtype=np.float32).reshape(2, 2))
    np.testing.assert_array_equal(rows, [[0, 0.25], [1, 0.75]])
    np.testing.assert_array_equal(columns, f32_array([[0, 1], [0.4, 0.6]]))
    np.testing.assert_array_equal(both, f32_array([[0, 0.16666667], [0.33333334, 0.5]]))


def test_pmap_runs_on_a_subset_of_devices(programs: Mapping[str, Program]) -> None:
    (mean,) = programs["normalise_by_mean"](DATA[2:])
    np.testing.assert_array_equal(
        mean, f32_array([[0.8, 0.8235294, 0.84210527], [1.2, 1.1764706, 1.1578947]])
    )


def test_rule_30_draws_the_picture_of_the_tutorial(programs: Mapping[str, Program]) -> None:
    lines, current = [], initial_board()
    for _ in range(21):
        lines.append("".join("*" if x else " " for x in current.ravel()).rstrip())
        (current,) = programs["rule_30"](current)
    for line, drawn in zip(lines, RULE_30_PICTURE.splitlines(), strict=True):
        assert line == drawn
