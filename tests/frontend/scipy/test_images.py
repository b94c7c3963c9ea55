"""`shardir.image` and `shardir.scipy.ndimage`: resampling and interpolation."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import image
from shardir.errors import ShardirError
from shardir.scipy import ndimage
from tests.optional_dependencies import require

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((3, 7, 4)) * 9).astype(np.float32)
METHODS = ("nearest", "linear", "lanczos3", "lanczos5", "cubic", "cubic-pytorch", "area")
MODES = ("constant", "nearest", "wrap", "mirror", "reflect")


@pytest.mark.sample(10)
@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16"])
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("shape", [(3, 11, 4), (5, 3, 9), (3, 2, 1), (3, 7, 4)])
@pytest.mark.parametrize("method", METHODS)
def test_resized_images_are_those_of_jax(
    method: str, shape: Any, antialias: bool, dtype: str
) -> None:
    require("jax")
    import jax.image

    x = np.asarray(sd.numpy.asarray(X, dtype))
    made = image.resize(x, shape, method, antialias)
    expected = jax.jit(lambda x: jax.image.resize(x, shape, method, antialias))(x)
    assert made.dtype == expected.dtype
    tolerance = 0.1 if dtype == "bfloat16" else 1e-4
    one, other = (np.asarray(each, np.float32) for each in (made, expected))
    np.testing.assert_allclose(one, other, tolerance, tolerance)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("method", "antialias"), list(product(METHODS[1:], (True, False))))
def test_images_and_gradients_of_translations_are_those_of_jax(
    method: str, antialias: bool
) -> None:
    require("jax")
    import jax
    import jax.image

    def move(library: Any, *args: Any) -> Any:
        return library.scale_and_translate(args[0], (3, 9, 5), (1, 2), *args[1:], method, antialias)

    def square_sum(library: Any, *args: Any) -> Any:
        moved = move(library, *args)
        return (moved**2).sum(), moved

    args = X, np.array([1.7, 0.6], np.float32), np.array([-2, 1.3], np.float32)
    made = sd.grad(lambda *args: square_sum(image, *args), (0, 1, 2), has_aux=True)(*args)
    expected = jax.jit(
        jax.grad(lambda *args: square_sum(jax.image, *args), (0, 1, 2), has_aux=True)
    )(*args)
    np.testing.assert_allclose(move(image, *args), expected[1], 1e-4, 1e-4)
    np.testing.assert_allclose(made[1], expected[1], 1e-4, 1e-4)
    for one, other in zip(made[0], expected[0], strict=True):
        np.testing.assert_allclose(one, other, 1e-3, 1e-2)


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("shape", "dtype"), [((5, 4), "float32"), ((1, 3), "int32")])
def test_interpolated_values_are_those_of_jax(
    mode: str, order: int, shape: Any, dtype: str
) -> None:
    require("jax")
    import jax.scipy.ndimage

    x = (RNG.standard_normal(shape) * 9).astype(dtype)
    places = [(RNG.standard_normal(20) * 4).astype(np.float32) for _ in range(2)]
    made = ndimage.map_coordinates(x, places, order, mode, 2)
    expected = jax.scipy.ndimage.map_coordinates(x, places, order, mode, 2)
    assert made.dtype == expected.dtype
    np.testing.assert_allclose(made, expected, 1e-5, 1e-5)


def test_batches_of_images_are_resized_without_communication() -> None:
    x = RNG.standard_normal((8, 6, 6, 2)).astype(np.float32)
    sharding = sd.NamedSharding(sd.make_mesh((8,), ("data",)), sd.P("data"))
    resize = sd.jit(lambda x: image.resize(x, (8, 12, 9, 2), "cubic"))
    placed = sd.device_put(x, sharding)
    assert resize.lower(placed).compile().collectives() == []
    np.testing.assert_allclose(resize(placed), resize(x), rtol=1e-5, atol=1e-5)


FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: image.resize(X, (3, 4), "linear"),
     "resize of an image of shape (3, 7, 4) has the new shape (3, 4); give a size for each "
     "dimension"),
    (lambda: image.resize(X, (3, 4, 4), "linnear"),
     "no method is named 'linnear'; it is one of nearest, linear, bilinear, trilinear, triangle, "
     "lanczos3, lanczos5, cubic, bicubic, tricubic, cubic-pytorch, bicubic-pytorch, area"),
    (lambda: image.scale_and_translate(X, (3, 4, 4), (1,), [1.0], [0.0], "nearest"),
     "scale_and_translate has no method 'nearest'; use 'linear', or resize"),
    (lambda: image.scale_and_translate(X, (3, 4, 4), (1, 2), [1.0], [0.0], "linear"),
     "scale_and_translate has 2 spatial_dims, a scale of shape (1,) and a translation of shape "
     "(1,); give both one number for each of these dimensions"),
    (lambda: ndimage.map_coordinates(X, [0.5], 1),
     "map_coordinates has 1 coordinate for an array of shape (3, 7, 4); give one array for each "
     "dimension"),
    (lambda: ndimage.map_coordinates(X[0, 0], [0.5], 3),
     "the order of map_coordinates is 3; it must be 0 or 1"),
    (lambda: ndimage.map_coordinates(X[0, 0], [0.5], 1, "edge"),
     "the mode of map_coordinates is 'edge'; it is one of 'constant', 'nearest', 'wrap', "
     "'mirror', 'reflect'"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_invalid_calls_are_errors(call: Any, message: str) -> None:
    with pytest.raises(ShardirError) as caught:
        call()
    assert str(caught.value).split("\n")[0] == message


@pytest.mark.parametrize(
    "resample",
    [
        lambda **options: image.resize(X, (3, 9, 5), "cubic", **options),
        lambda **options: image.scale_and_translate(
            X, (3, 7, 5), (2,), np.array([1.3]), np.array([0.5]), "linear", **options
        ),
    ],
)
def test_an_algorithm_states_the_type_of_the_sums(resample: Callable[..., Any]) -> None:
    narrow, complete = resample(precision="F16_F16_F16"), resample()
    assert narrow.dtype == complete.dtype == np.float32
    numbers = np.asarray(narrow)
    assert (numbers == numbers.astype(np.float16)).all()
    np.testing.assert_allclose(numbers, complete, 0.01, 0.05)
    assert not (numbers == np.asarray(complete)).all()
    with pytest.raises(ShardirError, match="products do not support the algorithm TF32_TF32_F32"):
        resample(precision="TF32_TF32_F32")


def test_the_nearest_elements_need_no_algorithm() -> None:
    made = image.resize(X, (3, 14, 4), "nearest", precision="TF32_TF32_F32")
    assert (np.asarray(made) == np.repeat(X, 2, 1)).all()
