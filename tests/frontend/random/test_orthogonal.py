"""Random orthogonal matrices are orthogonal and agree with JAX."""

from typing import Any

import numpy as np
import pytest

from shardir import random
from shardir.frontend.errors import ShapeError


@pytest.mark.parametrize(("n", "shape", "m"), [(4, (), None), (3, (2,), 5), (5, (2,), 3)])
def test_matrices_are_orthogonal_and_agree_with_jax(n: int, shape: tuple[int, ...], m: Any) -> None:
    got = np.asarray(random.orthogonal(random.key(3), n, shape, m=m))
    narrow = got if n >= (m or n) else np.swapaxes(got, -1, -2)
    inner = np.swapaxes(narrow, -1, -2) @ narrow
    np.testing.assert_allclose(
        inner, np.broadcast_to(np.eye(inner.shape[-1]), inner.shape), atol=1e-5
    )
    jax = pytest.importorskip("jax")
    theirs = jax.random.orthogonal(jax.random.key(3), n, shape, m=m)
    np.testing.assert_allclose(got, np.asarray(theirs), atol=1e-5)


def test_an_empty_matrix_is_an_error() -> None:
    with pytest.raises(ShapeError, match="orthogonal matrices cannot have 0 rows and 0 columns"):
        random.orthogonal(random.key(0), 0)
