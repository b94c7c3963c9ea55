"""Types of convolutions on meshes of Explicit axes: those of JAX 0.10.2, and equal numbers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax
from shardir.frontend.errors import ShardingTypeError
from shardir.sharding import PartitionSpec as P, reshard, use_mesh
from tests.frontend.shardings.explicit_programs import make_explicit_mesh

IMAGES = np.random.default_rng(0).integers(-9, 9, (8, 3, 8, 8)).astype("float32")
FILTER = np.random.default_rng(1).integers(-9, 9, (4, 3, 3, 3)).astype("float32")


@pytest.fixture(autouse=True)
def mesh() -> Iterator[sd.Mesh]:
    mesh = make_explicit_mesh()
    with use_mesh(mesh):
        yield mesh


def convolve(spec: Any, stride: int, padding: Any, **options: Any) -> tuple[str, Any, Any]:
    """Return the type of the result, its numbers, and those without shardings."""

    def run(images: Any) -> Any:
        strides = (stride, stride)
        return lax.conv_general_dilated(images, FILTER, strides, padding, **options)

    types: list[str] = []

    def traced(images: Any) -> Any:
        made = run(images)
        types.append(str(sd.typeof(made)))
        return made

    got = np.asarray(sd.jit(traced)(reshard(IMAGES, spec)))
    return types[0], got, np.asarray(run(reshard(IMAGES, P())))


@pytest.mark.parametrize(
    ("spec", "stride", "padding", "type"),
    [
        (P(None, None, "x"), 2, "SAME", "float32[8,4,4@x,4]"),
        (P(None, None, None, "y"), 3, "VALID", "float32[8,4,2,2@y]"),
        (P("x", None, "y"), 3, "VALID", "float32[8@x,4,2@y,2]"),
        (P(None, None, ("x", "y")), 1, "SAME", "float32[8,4,8@(x,y),8]"),
        (P(None, None, "y"), 3, ((2, 2), (0, 1)), "float32[8,4,4@y,3]"),
    ],
)
def test_the_result_has_the_axes_of_the_images(
    spec: Any, stride: int, padding: Any, type: str
) -> None:
    found, got, expected = convolve(spec, stride, padding)
    assert found == type
    np.testing.assert_array_equal(got, expected)


def test_layouts_with_other_orders_of_dimensions() -> None:
    type, got, expected = convolve(
        P(None, None, "x", "y"), 2, "SAME", dimension_numbers=("NCHW", "OIHW", "HNWC")
    )
    assert type == "float32[4@x,8,4@y,4]"
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("spec", "stride", "dim", "axes", "count", "shape"),
    [
        (P(None, None, ("x", "y")), 2, 2, "'x' and 'y'", 8, "[8, 4, 4, 4]"),
        (P(None, None, None, "y"), 3, 3, "'y'", 2, "[8, 4, 3, 3]"),
    ],
)
def test_a_result_that_the_axes_do_not_divide_is_refused(
    spec: Any, stride: int, dim: int, axes: str, count: int, shape: str
) -> None:
    with pytest.raises(ShardingTypeError) as caught:
        convolve(spec, stride, "SAME")
    size = shape[1:-1].split(", ")[dim]
    assert str(caught.value).partition("\n")[0] == (
        f"dimension {dim} of the result f32{shape} of convolution is sharded over {axes}, whose "
        f"size {count} does not divide {size}; reshard the operand (sharding.reshard), so that "
        "this dimension is unsharded"
    )
    with sd.config(explicit_sharding="lenient"):
        _, got, expected = convolve(spec, stride, "SAME")
    np.testing.assert_array_equal(got, expected)
