"""`RegularGridInterpolator`: agreement with SciPy, transformations, and wrong arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.errors import ShardirError
from shardir.scipy.interpolate import RegularGridInterpolator
from tests.error_assertions import first_line
from tests.optional_dependencies import require

RNG = np.random.default_rng(0)
GRID: Any = (np.array([0, 1, 3, 4], np.float32), np.array([0, 2, 3], np.float32))
VALUES: Any = RNG.standard_normal((4, 3, 2)).astype(np.float32)
PLACES: Any = (RNG.random((8, 6, 2)) * 5 - 0.5).astype(np.float32)
PLACES[0, 0, 0] = np.nan
PLACES[0, 1] = [4, 3]
PLACES[0, 2] = [0, 0]


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill", [np.nan, None, 7.0])
def test_values_are_those_of_scipy(method: Any, fill: Any) -> None:
    require("jax")  # It installs SciPy.
    import scipy.interpolate

    ours = RegularGridInterpolator(GRID, VALUES, method, fill_value=fill)
    theirs = scipy.interpolate.RegularGridInterpolator(
        GRID, VALUES, method, bounds_error=False, fill_value=fill
    )
    found = ours(PLACES)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, theirs(PLACES), 1e-4, 1e-5)
    plane = RegularGridInterpolator(
        GRID, (VALUES * 1j)[..., 0], fill_value=None if fill is None else fill * 1j
    )
    np.testing.assert_allclose(
        plane((PLACES[..., 0], PLACES[..., 1]), method), 1j * theirs(PLACES)[..., 0], 1e-4, 1e-5
    )


@pytest.mark.parametrize("dims", [1, 2])
def test_a_vector_states_points(dims: int) -> None:
    require("jax")
    import scipy.interpolate

    values = VALUES[(slice(None),) * dims + (0,) * (2 - dims)]
    ours = RegularGridInterpolator(GRID[:dims], values)
    theirs = scipy.interpolate.RegularGridInterpolator(GRID[:dims], values)
    for vector in (np.ones(dims, np.float32), np.arange(4, dtype=np.float32) / 2):
        found, expected = ours(vector), theirs(vector)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


def test_integers_become_floats_and_one_point_is_a_grid() -> None:
    line = RegularGridInterpolator([np.arange(3)], np.array([0, 10, 30]))
    np.testing.assert_allclose(line([[0.5], [1.5], [2]]), [5, 20, 30])
    point = RegularGridInterpolator([np.array([2.0])], np.array([5.0]))
    np.testing.assert_allclose(point([[2.0], [2.5]]), [5, np.nan])


def test_transformations() -> None:
    interpolate = RegularGridInterpolator(GRID, VALUES, fill_value=None)
    expected = interpolate(PLACES)
    np.testing.assert_allclose(sd.vmap(interpolate)(PLACES), expected)
    with sd.cpu_devices(8):
        sharding = sd.NamedSharding(sd.make_mesh((8,), ("x",)), sd.P("x"))
        placed = sd.device_put(PLACES, sharding)
        assert sd.jit(interpolate).lower(placed).compile().collectives() == []
        np.testing.assert_allclose(sd.jit(interpolate)(placed), expected)
    inner = np.array([0.5, 1.0], np.float32)
    gradient = sd.grad(lambda x: interpolate(x)[..., 0].sum())(inner)
    corners = VALUES[:2, :2, 0]
    slopes = [(corners[1] - corners[0]).mean(), (corners[:, 1] - corners[:, 0]).mean() / 2]
    np.testing.assert_allclose(gradient, slopes, 1e-4)
    traced = sd.jit(lambda grid, v, x: RegularGridInterpolator(grid, v, fill_value=None)(x))
    np.testing.assert_allclose(traced(GRID, VALUES, PLACES), expected)


FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: RegularGridInterpolator(GRID, VALUES.T),
     "RegularGridInterpolator takes one vector of coordinates for each of the first dimensions of "
     "the values, of their sizes; got shapes (4,), (3,) for values of shape (2, 3, 4)"),
    (lambda: RegularGridInterpolator((GRID[0][::-1], GRID[1]), VALUES),
     "points[0] of RegularGridInterpolator does not ascend; sort it, and the values along the same "
     "dimension"),
    (lambda: RegularGridInterpolator(GRID, VALUES, "cubic"),
     "the method of RegularGridInterpolator is 'cubic'; it is 'linear' or 'nearest'"),
    (lambda: RegularGridInterpolator(GRID, VALUES, bounds_error=True),
     "bounds_error of RegularGridInterpolator would depend on the elements of an array; leave it "
     "out, and compare the result with fill_value"),
    (lambda: RegularGridInterpolator(GRID, VALUES, fill_value=1j),
     "fill_value of RegularGridInterpolator is 1j, which is not of the kind of the values, "
     "float32"),
    (lambda: RegularGridInterpolator(GRID, VALUES)(PLACES[..., :1]),
     "RegularGridInterpolator of 2 dimensions takes coordinates (..., 2), got shape (8, 6, 1)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_wrong_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShardirError) as error:
        call()
    assert first_line(error) == message
