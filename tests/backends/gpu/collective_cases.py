"""Exchanges of all kinds, for all element types they are for, and what the reference makes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.gpu.runtime_files import axes_text
from shardir.backends.gpu.vendored.arrays import to_numpy
from shardir.backends.gpu.vendored.comm import Comm
from shardir.ir.mesh import Mesh
from shardir.ir.operation import OPS, Symbol
from shardir.ir.sharding import Axis
from shardir.ir.types import DTYPES, TensorType
from shardir.ops.communication.collectives import REDUCTIONS

MESH = Mesh("m", (("a", 2), ("b", 2)))
"""The mesh of all exchanges; of its axes, and of all of it in both orders."""
A, B = Axis("a", 1, 2), Axis("b", 1, 2)


@dataclass(frozen=True)
class Case:
    """One exchange: an operation, its attributes, and the type of what each device gives."""

    op: str
    dtype: str
    shape: tuple[int, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    def call(self, comm: Comm, x: Any) -> Any:
        """Do it on a device."""
        said = {
            key: axes_text(value, MESH) if key in ("axes", "source", "target") else value
            for key, value in self.attrs.items()
        }
        return getattr(comm, self.op.replace("-", "_"))(x, **said)

    def __str__(self) -> str:
        told = ",".join(
            "".join(axis.name for axis in value)
            if key in ("axes", "source", "target")
            else str(value)
            for key, value in self.attrs.items()
        )
        return f"{self.op}({told}) {self.dtype}{list(self.shape)}".replace(" ", "")


def part_of(case: Case, device: int) -> npt.NDArray[Any]:
    """What a device gives."""
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
    made = rng.integers(-9, 9, case.shape).astype(type)
    if case.attrs.get("op") in ("max", "min"):
        # Extremes see what is not a number, and tell zeros apart.
        made = made.reshape(-1)
        made[:3] = [0.0 if device % 2 else -0.0, np.nan if device == 1 else 1, -0.0][: made.size]
        made = made.reshape(case.shape)
    return np.asarray(made)


def _wanted(case: Case) -> list[npt.NDArray[Any]]:
    key = str(case)
    if key not in _MADE:
        _MADE[key] = reference(case)
    return _MADE[key]


_MADE: dict[str, list[npt.NDArray[Any]]] = {}


def reference(case: Case) -> list[npt.NDArray[Any]]:
    """What each device gets."""
    spec = OPS[case.op]
    type = TensorType(case.shape, case.dtype)
    attrs = {key: Symbol(value) if key == "op" else value for key, value in case.attrs.items()}
    result = spec.type(type, result=None, **attrs)
    assert spec.exchange is not None
    parts = [(part_of(case, device),) for device in range(MESH.size)]
    return list(spec.exchange(MESH, parts, result=result, **attrs))


def check(case: Case, made: Sequence[Any]) -> None:
    """What every device got is the reference's."""
    for device, tensor in enumerate(made):
        check_one(case, device, tensor)


def check_one(case: Case, device: int, tensor: Any) -> None:
    """Every bit of what a device got is the reference's, but for which NaN a NaN is."""
    wanted = _wanted(case)[device]
    array = to_numpy(tensor).view(wanted.dtype)
    assert array.shape == wanted.shape, f"device {device}"
    assert tensor.is_contiguous(), f"device {device}"
    unknown = np.isnan(wanted) if wanted.dtype.kind not in "iub" else np.zeros(wanted.shape, bool)
    nothing = np.zeros((), wanted.dtype)
    assert np.array_equal(unknown, array != array), f"device {device}: {array} is not {wanted}"
    got, known = (np.where(unknown, nothing, x).tobytes() for x in (array, wanted))
    assert got == known, f"device {device}: {array} is not {wanted}"


def _cases() -> list[Case]:
    cases = []
    for op, (_, domain) in REDUCTIONS.items():
        for dtype in DTYPES:
            try:
                domain.check(TensorType((), dtype))
            except TypeError:
                continue
            cases.append(Case("all-reduce", dtype, (5,), {"op": op, "axes": (A,)}))
            cases.append(
                Case("reduce-scatter", dtype, (3, 4), {"op": op, "dim": 1, "axes": (B, A)})
            )
    for dtype in DTYPES:
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
