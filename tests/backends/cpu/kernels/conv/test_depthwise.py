"""Rounding of the results of depthwise convolutions."""

import numpy as np
import pytest

from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops import convolution
from tests.backends.cpu.kernels.conv.test_convolution import attributes
from tests.backends.cpu.phase_runner import lower_and_run, make_op, selected_kernel_names

INSTRUCTION_SETS = ["avx512", "avx2", "sse"]


@pytest.mark.parametrize("limit", INSTRUCTION_SETS)
@pytest.mark.parametrize("channels", [16, 32, 48, 64, 70])
def test_sums_of_depthwise_convolutions_are_rounded_to_nearest_even(
    channels: int, limit: str
) -> None:
    """Results are those of one product: also ties, overflow, NaN with and without quiet bits."""
    kind = NUMPY_DTYPES["bf16"]
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 0x7F80, (2, 9, 11, channels), np.uint16)
    x = (bits | rng.integers(0, 2, bits.shape, np.uint16) << 15).view(kind)
    x[0, :, :, -1] = np.uint16(0x7F81).view(kind)
    w = np.zeros((3, 3, 1, channels), kind)
    # Products with 1.5 and 1.0078125 have one and seven further bits.
    w[1, 1, 0] = rng.choice([1.5, -1.0078125, 3.0], channels)
    attrs = attributes(2, "b01f,01io->b01f", padding=((1, 1), (1, 1)), groups=channels)
    op = make_op(convolution, *(TensorType(a.shape, "bf16") for a in (x, w)), **attrs)
    machine = host_machine().limited_to(limit)
    (name,) = selected_kernel_names(RULES["convolution"], op, machine)
    assert name.startswith("depthwise_bf16_")
    out = np.empty(op.result.type.shape, kind)
    lower_and_run(RULES["convolution"], op, [x, w], [out], machine=machine)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float32) * w[1, 1, 0].astype(np.float32)).astype(kind)
    is_nan = np.isnan(expected.astype(np.float32))
    assert is_nan.sum() == 9 * 11
    np.testing.assert_array_equal(np.isnan(out.astype(np.float32)), is_nan)
    # A sum with zeros of both signs is positive.
    same = (out.view(np.uint16) == expected.view(np.uint16)) | (expected == 0)
    assert (same | is_nan).all()
