"""Sorts of c64: NaN in either part last, signs of zeros preserved."""

import numpy as np
import pytest

from shardir.backends.cpu.kernels.sort import samplesort
from shardir.backends.cpu.kernels.sort.sort_rules import RULES
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from tests.backends.cpu.kernels.random_layouts import Array
from tests.backends.cpu.kernels.reference_check import assert_equal_bits, reference_results
from tests.backends.cpu.phase_runner import lower_and_run, make_op

PART_VALUES = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, -1.0, 2.5, 1e-45, -3e38]


def random_complex(shape: tuple[int, ...], special: bool) -> Array:
    random = np.random.default_rng(shape[-1])
    made = np.zeros((*shape, 2), np.float32)
    made[...] = (
        random.choice(PART_VALUES, made.shape) if special else random.normal(size=made.shape)
    )
    return made.view(np.complex64)[..., 0]


def check(x: Array, dim: int, workers: int = 2) -> None:
    op = make_op(OPS["sort"], TensorType(x.shape, "c64"), dim=dim)
    out = np.zeros_like(x)
    assert lower_and_run(RULES["sort"], op, [x], [out], workers) is not None
    assert_equal_bits(out, reference_results(op, [x])[0])


@pytest.mark.sample(3)
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((1,), 0), ((7,), 0), ((900,), 0), ((3, 700), 1), ((9, 50), 1), ((700, 2), 0)],
)
def test_complex_lines_are_sorted(
    shape: tuple[int, ...], dim: int, special: bool, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not packed:
        monkeypatch.setattr(samplesort, "has_compress", lambda size, machine: False)
    x = random_complex(shape, special)
    check(x, dim)
    check(np.asfortranarray(x), dim)
    check(x[::-1], dim)


@pytest.mark.parametrize("special", [True, False])
def test_long_complex_lines_are_sorted(special: bool) -> None:
    check(random_complex((70_001,), special), 0, 3)


def test_a_single_negative_zero_keeps_its_sign() -> None:
    x = (np.arange(1000) % 4 + 1j * (np.arange(1000) % 3)).astype(np.complex64)
    x[777] = complex(2, -0.0)
    check(x, 0)
