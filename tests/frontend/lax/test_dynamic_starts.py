"""Static starts of dynamic slices that are negative where negative starts are not allowed."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.errors import OperationTypeError
from tests.error_assertions import error_line

X: Any = np.arange(10.0, dtype="f")

CALLS: dict[str, Any] = {
    "dynamic_slice": lambda x, i, **o: lax.dynamic_slice(x, (i,), (2,), **o),
    "dynamic_slice_in_dim": lambda x, i, **o: lax.dynamic_slice_in_dim(x, i, 2, **o),
    "dynamic_index_in_dim": lambda x, i, **o: lax.dynamic_index_in_dim(x, index=i, **o),
    "dynamic_update_slice": lambda x, i, **o: lax.dynamic_update_slice(x, x[:2], [i], **o),
    "dynamic_update_slice_in_dim": lambda x, i, **o: lax.dynamic_update_slice_in_dim(
        x, x[:2], i, 0, **o
    ),
    "dynamic_update_index_in_dim": lambda x, i, **o: lax.dynamic_update_index_in_dim(
        x, 1.0, i, 0, **o
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("start", [-3, np.int32(-3)])
def test_a_negative_static_start_is_an_error_also_outside_of_a_trace(name: str, start: Any) -> None:
    call, x = CALLS[name], snp.asarray(X)
    what = "dynamic_update_slice" if "update" in name else "dynamic_slice"
    text = f"start -3 of {what} in dimension 0 is negative, and allow_negative_indices is false"
    for _ in range(3):  # The native call cache repeats calls that were seen before.
        assert (
            error_line(OperationTypeError, lambda: call(x, start, allow_negative_indices=False))
            == text
        )
        np.testing.assert_array_equal(call(x, start), sd.jit(lambda x: call(x, start))(x))
        call(x, 3, allow_negative_indices=False)
    with pytest.raises(OperationTypeError, match=text):
        sd.jit(lambda x: call(x, start, allow_negative_indices=False))(x)


def test_a_negative_traced_start_is_clamped_if_it_is_not_allowed() -> None:
    found = lax.dynamic_slice(snp.asarray(X), (snp.int32(-3),), (2,), allow_negative_indices=False)
    assert found.tolist() == [0, 1]
