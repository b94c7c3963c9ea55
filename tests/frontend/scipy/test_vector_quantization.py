"""The nearest codes of observations."""

import numpy as np

from shardir.frontend.errors import ShapeError
from shardir.frontend.scipy.vector_quantization import vq
from shardir.scipy import cluster, integrate
from tests.error_assertions import error_line


def test_nearest_code_and_its_distance() -> None:
    codes, distances = vq([[1.0, 2.0], [5.0, 5.0]], [[0.0, 2.0], [5.0, 4.0]])
    np.testing.assert_array_equal(codes, [0, 1])
    np.testing.assert_allclose(distances, [1, 1])
    codes, distances = vq([1, 7], [0, 8, 3])
    np.testing.assert_array_equal(codes, [0, 1])
    assert distances.dtype == np.float32
    assert cluster.vq.vq is vq
    assert float(integrate.trapezoid([1.0, 3.0])) == 2


def test_different_numbers_of_features_are_an_error() -> None:
    assert error_line(ShapeError, lambda: vq(np.ones((2, 3)), np.ones((2, 2)))) == (
        "vq got obs of shape (2, 3) and code_book of shape (2, 2); both are vectors, or matrices "
        "with the same number of columns"
    )
