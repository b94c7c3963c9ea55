"""Cases of all collectives for all element types that they support, with the reference results."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.gpu.runtime_files import axes_text
from shardir.backends.gpu.vendored.arrays import to_numpy
from shardir.backends.gpu.vendored.comm import Comm
from shardir.ir.builder import infer_types
from shardir.ir.dtypes import RBG_KEYS
from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ir.operation import OPS, Symbol
from shardir.ir.sharding import Axis
from shardir.ir.types import TensorType
from shardir.ops.communication.collectives import REDUCTIONS
from tests.dtype_groups import DTYPES

_DTYPES = [dtype for dtype in DTYPES if dtype not in RBG_KEYS]
"""GPUs have no elements of 128 bits."""

MESH = Mesh("m", (("a", 2), ("b", 2)))
"""The mesh of all cases; they use its axes, and both axes in both orders."""
A, B = Axis("a", 1, 2), Axis("b", 1, 2)


@dataclass(frozen=True)
class Case:
    """A collective: the operation, its attributes, and the type of the operand on each device."""

    op: str
    dtype: str
    shape: tuple[int, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    def call(self, comm: Comm, x: Any) -> Any:
        """Run the collective on one device."""
        arguments = {
            key: axes_text(value, MESH) if key in ("axes", "source", "target") else value
            for key, value in self.attrs.items()
        }
        return getattr(comm, self.op.replace("-", "_"))(x, **arguments)

    def __str__(self) -> str:
        attrs_text = ",".join(
            "".join(axis.name for axis in value)
            if key in ("axes", "source", "target")
            else str(value)
            for key, value in self.attrs.items()
        )
        return f"{self.op}({attrs_text}) {self.dtype}{list(self.shape)}".replace(" ", "")


def operand_of(case: Case, device: int) -> npt.NDArray[Any]:
    """Return the operand of a device."""
    type = TensorType(case.shape, case.dtype).numpy
    rng = np.random.default_rng(device)
    if case.dtype == "bool":
        return rng.integers(0, 2, case.shape).astype(type)
    if case.dtype in ("c64", "c128"):
        return np.asarray(
            (rng.integers(-9, 9, case.shape) + 1j * rng.integers(-9, 9, case.shape)).astype(type)
        )
    if type.kind in "iu":
        info = np.iinfo(type)
        return rng.integers(info.min, info.max, case.shape, type, endpoint=True)
    operand = rng.integers(-9, 9, case.shape).astype(type)
    if case.attrs.get("op") in ("max", "min"):
        # max and min must propagate NaN and distinguish the signs of zeros.
        operand = operand.reshape(-1)
        operand[:3] = [0.0 if device % 2 else -0.0, np.nan if device == 1 else 1, -0.0][
            : operand.size
        ]
        operand = operand.reshape(case.shape)
    return np.asarray(operand)


def _cached_reference(case: Case) -> list[npt.NDArray[Any]]:
    key = str(case)
    if key not in _REFERENCES:
        _REFERENCES[key] = reference(case)
    return _REFERENCES[key]


_REFERENCES: dict[str, list[npt.NDArray[Any]]] = {}


def reference(case: Case) -> list[npt.NDArray[Any]]:
    """Return the result of each device."""
    spec = OPS[case.op]
    type = TensorType(case.shape, case.dtype)
    attrs = {key: Symbol(value) if key == "op" else value for key, value in case.attrs.items()}
    (result,) = infer_types(spec, (Value(type),), None, attrs)
    assert spec.exchange is not None
    parts = [(operand_of(case, device),) for device in range(MESH.size)]
    return list(spec.exchange(MESH, parts, result=result, **spec.rule_arguments(attrs)))


def check(case: Case, results: Sequence[Any]) -> None:
    """Assert that the result of every device equals the reference."""
    for device, tensor in enumerate(results):
        check_device(case, device, tensor)


def check_device(case: Case, device: int, tensor: Any) -> None:
    """Assert that all bits of a device's result equal the reference; NaN payloads may differ."""
    expected = _cached_reference(case)[device]
    array = to_numpy(tensor).view(expected.dtype)
    assert array.shape == expected.shape, f"device {device}"
    assert tensor.is_contiguous(), f"device {device}"
    is_nan = (
        np.isnan(expected) if expected.dtype.kind not in "iub" else np.zeros(expected.shape, bool)
    )
    zero = np.zeros((), expected.dtype)
    assert np.array_equal(is_nan, array != array), f"device {device}: {array} is not {expected}"
    result_bytes, expected_bytes = (np.where(is_nan, zero, x).tobytes() for x in (array, expected))
    assert result_bytes == expected_bytes, f"device {device}: {array} is not {expected}"


def _cases() -> list[Case]:
    cases = []
    for op, (_, domain) in REDUCTIONS.items():
        for dtype in _DTYPES:
            try:
                domain.check(TensorType((), dtype))
            except TypeError:
                continue
            cases.append(Case("all-reduce", dtype, (5,), {"op": op, "axes": (A,)}))
            cases.append(
                Case("reduce-scatter", dtype, (3, 4), {"op": op, "dim": 1, "axes": (B, A)})
            )
    for dtype in _DTYPES:
        cases += [
            Case("all-gather", dtype, (2, 3), {"dim": 1, "axes": (A, B)}),
            Case("all-to-all", dtype, (4, 3), {"split": 0, "concat": 1, "axes": (B,)}),
            Case("collective-permute", dtype, (3,), {"axes": (A, B), "pairs": ((0, 3), (3, 1))}),
        ]
    return [
        *cases,
        Case("all-reduce", "f32", (), {"op": "add", "axes": (A, B)}),
        Case("all-reduce", "f32", (0, 3), {"op": "max", "axes": (A, B)}),
        Case("all-reduce", "bf16", (40_001,), {"op": "add", "axes": (B, A)}),
        Case("all-reduce", "u16", (40_001,), {"op": "max", "axes": (A, B)}),
        Case("all-reduce", "u32", (20_001,), {"op": "add", "axes": (B,)}),
        Case("all-gather", "f32", (2, 3), {"dim": 0, "axes": (B, A)}),
        Case("all-gather", "f32", (0, 3), {"dim": 1, "axes": (B,)}),
        Case("all-slice", "f32", (4, 4), {"dim": 1, "axes": (B, A)}),
        Case("all-to-all", "f32", (4, 8), {"split": 1, "concat": 0, "axes": (B, A)}),
        Case("collective-permute", "f32", (3,), {"source": (A,), "target": (B,)}),
        Case("collective-permute", "f32", (3,), {"source": (A, B), "target": (B, A)}),
        Case("collective-permute", "bool", (3,), {"axes": (B,), "pairs": ((0, 1), (1, 0))}),
        Case("collective-permute", "f32", (3,), {"axes": (B,), "pairs": ((0, 0),)}),
    ]


CASES = _cases()
