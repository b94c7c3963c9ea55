"""Run emitted programs on the host model, with many programs compiled together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir import tree_util
from shardir.backends.emission import Emission
from shardir.backends.ipu.host_model import build
from shardir.backends.ipu.target import program_text
from shardir.interpret.interpreter import run as interpreted
from shardir.ir.module import Module
from shardir.ir.types import TensorType
from shardir.ops.random.threefry import split_words

Array = npt.NDArray[Any]

TOLERANCES = {"f16": 4e-3, "f32": 1e-4}
"""Tolerances relative to the largest element."""


@dataclass(frozen=True)
class Case:
    """A program to emit: its emission, unsharded arguments, and the unpartitioned module."""

    emission: Emission
    module: Module
    arguments: Sequence[Array]
    options: Mapping[str, str]

    @classmethod
    def of(cls, lowered: Any, args: Sequence[Any], **options: str) -> "Case":
        """Return the case of a lowered function and its arguments."""
        emission = lowered.emission("ipu")
        leaves = [_reference_array(leaf) for leaf in tree_util.tree_leaves(args)]
        values = [b.value for b in emission.arguments if b.value is not None]
        return cls(emission, lowered.module, [*leaves, *values], options)

    @property
    def text(self) -> str:
        return program_text(self.emission, self.options)


def _reference_array(leaf: Any) -> Array:
    """Return an argument in the representation of the reference: keys as 64-bit words."""
    if "key" not in str(getattr(leaf, "dtype", "")):
        return np.asarray(leaf)
    from shardir import random

    words = np.asarray(random.key_data(leaf)).astype(np.uint64)
    joined: Array = (words[..., 0] << np.uint64(32)) | words[..., 1]
    return joined


def to_program_array(array: Array, type: TensorType) -> Array:
    """Return an array in the representation of emitted programs: keys as two words."""
    if type.dtype == "key":
        return np.stack(split_words(array), -1)
    return np.asarray(array, type.numpy)


def check(cases: Mapping[str, Case], steps: int = 1) -> None:
    """Emit the programs, compile them together, run them, and compare all results with the
    reference."""
    programs = build({name: case.text for name, case in cases.items()})
    for name, case in cases.items():
        program_arguments = [
            to_program_array(array, boundary.unsharded_type)
            for array, boundary in zip(case.arguments, case.emission.arguments, strict=True)
        ]
        results = programs[name](*program_arguments, steps=steps)
        expected = interpreted(case.module, case.arguments)
        for boundary, result, want in zip(case.emission.results, results, expected, strict=True):
            assert_close(f"{name}: {boundary.label}", result, want, boundary.unsharded_type)


def assert_close(what: str, result: Array, want: Array, type: TensorType) -> None:
    """Compare floats within a tolerance and all other types exactly."""
    expected = to_program_array(want, type)
    if type.dtype not in TOLERANCES:
        np.testing.assert_array_equal(result, expected, err_msg=what)
        return
    size = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    tolerance = TOLERANCES[type.dtype]
    np.testing.assert_allclose(
        result, expected, rtol=tolerance, atol=tolerance * float(size) * 0.1, err_msg=what
    )
