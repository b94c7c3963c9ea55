"""Rotations of three-dimensional vectors: `shardir.scipy.spatial.transform`."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.call_signatures import with_constructor_errors, with_method_errors
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy import api as snp
from shardir.frontend.quoting import brief
from shardir.frontend.random import continuous_distributions
from shardir.frontend.source_locations import with_location

__all__ = ["Rotation", "Slerp"]

_SMALL_ANGLE = 1e-3
"""The angle in radians up to which a series replaces a quotient of angles and sines."""
_DEGENERATE_ANGLE = 1e-7
"""The angle in radians within which two Euler axes are parallel."""


@with_constructor_errors
@with_method_errors
class Rotation(NamedTuple):
    """Rotations as quaternions of norm 1: x, y, z, w, for one rotation or for each row."""

    quat: Any
    """The quaternions, whose last dimension has the size 4."""

    @classmethod
    def concatenate(cls, rotations: Sequence["Rotation"]) -> "Rotation":
        """Return the rotations of several objects in one."""
        return cls(snp.concatenate([snp.atleast_2d(each.quat) for each in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: ArrayLike, degrees: bool = False) -> "Rotation":
        """Return the rotations around one to three axes in turn.

        `seq` names the axes: `xyz` if they are fixed, `XYZ` if they rotate too. The last dimension
        of `angles` has one angle for each axis; for one axis, a number is one rotation.
        """
        axes, is_intrinsic = _parse_axes(seq, "one to three")
        given = _as_floats(angles)
        if given.ndim == 0:
            given = given[None]
        if given.shape[-1] != len(axes):
            raise ShapeError(
                with_location(
                    f"from_euler got angles of shape {given.shape} for the axes {seq!r}; the last "
                    f"dimension has the size {len(axes)}"
                )
            )
        halves = (snp.deg2rad(given) if check_flag("degrees", degrees) else given) / 2
        total: Any = None
        for position, axis in enumerate(axes):
            half = halves[..., position]
            parts = [snp.zeros_like(half)] * 3 + [snp.cos(half)]
            parts[axis] = snp.sin(half)
            each = snp.stack(parts, axis=-1)
            if total is None:
                total = each
            else:
                total = _compose(total, each) if is_intrinsic else _compose(each, total)
        return cls.from_quat(total)

    @classmethod
    def from_matrix(cls, matrix: ArrayLike) -> "Rotation":
        """Return the rotations of orthogonal matrices with determinant 1."""
        m = _as_floats(matrix)
        _check_last("from_matrix", "matrix", m, (3, 3))
        trace = m[..., 0, 0] + m[..., 1, 1] + m[..., 2, 2]
        candidates = []
        for i in range(3):  # Each is a multiple of the quaternion; the largest one is exact.
            j, k = (i + 1) % 3, (i + 2) % 3
            parts: list[Any] = [None] * 4
            parts[i] = 1 - trace + 2 * m[..., i, i]
            parts[j] = m[..., j, i] + m[..., i, j]
            parts[k] = m[..., k, i] + m[..., i, k]
            parts[3] = m[..., k, j] - m[..., j, k]
            candidates.append(snp.stack(parts, axis=-1))
        differences = [m[..., (i + 2) % 3, (i + 1) % 3] - m[..., (i + 1) % 3, (i + 2) % 3]
                       for i in range(3)]  # fmt: skip
        candidates.append(snp.stack([*differences, 1 + trace], axis=-1))
        sizes = snp.stack([*(m[..., i, i] for i in range(3)), trace], axis=-1)
        largest = snp.argmax(sizes, axis=-1)[..., None]
        chosen = candidates[3]
        for i in range(3):
            chosen = snp.where(largest == i, candidates[i], chosen)
        return cls.from_quat(chosen)

    @classmethod
    def from_mrp(cls, mrp: ArrayLike) -> "Rotation":
        """Return the rotations of modified Rodrigues parameters: the axis times tan(angle / 4)."""
        vector = _as_floats(mrp)
        _check_last("from_mrp", "mrp", vector, (3,))
        square = snp.sum(vector * vector, axis=-1, keepdims=True)
        return cls(snp.concatenate([2 * vector, 1 - square], axis=-1) / (1 + square))

    @classmethod
    def from_quat(cls, quat: ArrayLike) -> "Rotation":
        """Return the rotations of quaternions x, y, z, w of any norm."""
        parts = _as_floats(quat)
        _check_last("from_quat", "quat", parts, (4,))
        return cls(parts / snp.linalg.norm(parts, axis=-1, keepdims=True))

    @classmethod
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> "Rotation":
        """Return the rotations around vectors by their norms."""
        vector = _as_floats(rotvec)
        _check_last("from_rotvec", "rotvec", vector, (3,))
        if check_flag("degrees", degrees):
            vector = snp.deg2rad(vector)
        square = snp.sum(vector * vector, axis=-1, keepdims=True)
        is_small = square <= _SMALL_ANGLE**2
        angle = snp.sqrt(snp.where(is_small, 1, square))
        series = 1 / 2 - square / 48 + square**2 / 3840
        scale = snp.where(is_small, series, snp.sin(angle / 2) / angle)
        w = snp.where(is_small, 1 - square / 8 + square**2 / 384, snp.cos(angle / 2))
        return cls(snp.concatenate([scale * vector, w], axis=-1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> "Rotation":
        """Return the rotation by no angle, `num` times if it is stated."""
        one = snp.array([0, 0, 0, 1], dtype=dtype)
        return cls(one if num is None else snp.tile(one, (num, 1)))

    @classmethod
    def random(cls, random_key: ArrayLike, num: int | None = None) -> "Rotation":
        """Return a rotation of the uniform distribution, or `num` of them."""
        shape = (4,) if num is None else (num, 4)
        return cls.from_quat(continuous_distributions.normal(random_key, shape))

    def __getitem__(self, indexer: Any) -> "Rotation":
        if self.single:
            raise ArgumentError(with_location("one rotation has no items"))
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise ArgumentError(with_location("one rotation has no length"))
        return int(self.quat.shape[0])

    def __mul__(self, other: "Rotation") -> "Rotation":  # type: ignore[override]
        """Return the rotation by `other`, then by this one."""
        return Rotation.from_quat(_compose(self.quat, other.quat))

    def apply(self, vectors: ArrayLike, inverse: bool = False) -> Any:
        """Return the rotated vectors; with `inverse`, those of the opposite rotation."""
        matrix = self.as_matrix()
        if check_flag("inverse", inverse):
            matrix = snp.swapaxes(matrix, -1, -2)
        return snp.einsum("...ij,...j->...i", matrix, _as_floats(vectors))

    def as_euler(self, seq: str, degrees: bool = False) -> Any:
        """Return the angles around three axes, as `from_euler` takes them.

        The third angle is 0 if the first and the third axis are parallel.
        """
        axes, is_intrinsic = _parse_axes(seq, "three")
        angles = _euler_angles(self.quat, axes[::-1] if is_intrinsic else axes, is_intrinsic)
        return snp.rad2deg(angles) if check_flag("degrees", degrees) else angles

    def as_matrix(self) -> Any:
        """Return the orthogonal matrices of the rotations."""
        x, y, z, w = (self.quat[..., i] for i in range(4))
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w],
        ]
        return snp.stack([snp.stack(row, axis=-1) for row in rows], axis=-2)

    def as_mrp(self) -> Any:
        """Return modified Rodrigues parameters: the axis times tan(angle / 4)."""
        vector, w = _canonical_parts(self.quat)
        return vector / (1 + w)

    def as_rotvec(self, degrees: bool = False) -> Any:
        """Return the axes times the angles, which are at most half a turn."""
        vector, w = _canonical_parts(self.quat)
        square = snp.sum(vector * vector, axis=-1, keepdims=True)
        is_small = square <= (_SMALL_ANGLE / 2) ** 2
        sine = snp.sqrt(snp.where(is_small, 1, square))
        series = 2 + square / 3 + 3 * square**2 / 20
        scale = snp.where(is_small, series, 2 * snp.arctan2(sine, w) / sine)
        rotvec = scale * vector
        return snp.rad2deg(rotvec) if check_flag("degrees", degrees) else rotvec

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Any:
        """Return the quaternions: x, y, z, w, or w first with `scalar_first`.

        With `canonical`, of the two quaternions of a rotation the one with w >= 0.
        """
        quat = self.quat
        if check_flag("canonical", canonical):
            quat = snp.concatenate(_canonical_parts(quat), axis=-1)
        return snp.roll(quat, 1, axis=-1) if check_flag("scalar_first", scalar_first) else quat

    def inv(self) -> "Rotation":
        """Return the opposite rotations."""
        return Rotation(self.quat * snp.array([-1, -1, -1, 1], dtype=self.quat.dtype))

    def magnitude(self) -> Any:
        """Return the angles of the rotations, from 0 to pi."""
        vector, w = self.quat[..., :3], self.quat[..., 3]
        return 2 * snp.arctan2(snp.linalg.norm(vector, axis=-1), snp.abs(w))

    def mean(self, weights: ArrayLike | None = None) -> "Rotation":
        """Return the rotation whose matrix is the nearest one to the weighted sum of matrices."""
        quat = snp.atleast_2d(self.quat)
        scaled = quat if weights is None else quat * _as_floats(weights)[:, None]
        return Rotation.from_quat(snp.linalg.eigh(scaled.T @ quat)[1][:, -1])

    @property
    def single(self) -> bool:
        """True if the object has one rotation without a dimension of rotations."""
        return bool(self.quat.ndim == 1)


class _SlerpFields(NamedTuple):
    """The fields of an interpolation of rotations."""

    times: Any
    """The ascending times."""
    timedelta: Any
    """The differences of successive times."""
    rotations: Rotation
    """The rotations at all times but the last one."""
    rotvecs: Any
    """The rotation vectors from each rotation to the next one."""


@with_method_errors
class Slerp(_SlerpFields):
    """An interpolation of rotations at given times with a constant angular velocity between them;
    `init` returns it."""

    __slots__ = ()

    @with_argument_errors
    def __new__(
        cls, times: Any, timedelta: Any = None, rotations: Any = None, rotvecs: Any = None
    ) -> "Slerp":
        """Return the interpolation with these fields; raise `ArgumentError` for an absent one."""
        if timedelta is None or rotations is None or rotvecs is None:
            raise ArgumentError(
                with_location(
                    "Slerp takes the fields of an interpolation: times, timedelta, rotations and "
                    "rotvecs; call Slerp.init(times, rotations) to compute them from rotations at "
                    "given times"
                )
            )
        return super().__new__(cls, times, timedelta, rotations, rotvecs)

    @classmethod
    def init(cls, times: ArrayLike, rotations: Rotation) -> "Slerp":
        """Return the interpolation of two or more rotations at ascending times."""
        at = _as_floats(times)
        count = 1 if rotations.single else len(rotations)
        if at.ndim != 1 or count < 2 or at.shape[0] != count:
            raise ShapeError(
                with_location(
                    f"Slerp got times of shape {at.shape} and {count} rotations; it interpolates "
                    "between two or more rotations with one time each"
                )
            )
        first, second = Rotation(rotations.quat[:-1]), Rotation(rotations.quat[1:])
        return cls(at, at[1:] - at[:-1], first, (first.inv() * second).as_rotvec())

    def __call__(self, times: ArrayLike) -> Rotation:
        """Return the rotations at `times`."""
        at = _as_floats(times)
        index = snp.clip(snp.searchsorted(self.times, at) - 1, 0, self.timedelta.shape[0] - 1)
        share = (at - self.times[index]) / self.timedelta[index]
        turn = Rotation.from_rotvec(self.rotvecs[index] * share[..., None])
        return Rotation(self.rotations.quat[index]) * turn


def _as_floats(x: ArrayLike) -> Any:
    array = snp.asarray(x)
    return array.astype(snp.result_type(array.dtype, float))


def _check_last(function: str, name: str, array: Any, sizes: tuple[int, ...]) -> None:
    if array.shape[-len(sizes) :] != sizes:
        raise ShapeError(
            with_location(
                f"{function} got {name} of shape {array.shape}; its last sizes are "
                f"{', '.join(map(str, sizes))}"
            )
        )


def _parse_axes(seq: str, count: str) -> tuple[list[int], bool]:
    """Return the numbers of the axes of a sequence such as `xyz`, and whether they rotate."""
    is_intrinsic = isinstance(seq, str) and seq.isupper()
    axes = ["xyz".find(each) for each in seq.lower()] if isinstance(seq, str) else []
    is_known = bool(axes) and -1 not in axes and (is_intrinsic or seq.islower())
    is_repeated = any(a == b for a, b in pairwise(axes))
    if not is_known or is_repeated or len(axes) > 3 or (count == "three" and len(axes) != 3):
        raise ArgumentError(
            with_location(
                f"{brief(seq)} is no sequence of {count} axes; write axes such as 'xyz', or 'XYZ' "
                "if they rotate too, without the same axis twice in a row"
            )
        )
    return axes, is_intrinsic


def _compose(p: Any, q: Any) -> Any:
    """Return the product of quaternions: the rotation by `q`, then by `p`."""
    a, b = p[..., :3], q[..., :3]
    v, w = p[..., 3:], q[..., 3:]
    vector = v * b + w * a + snp.cross(a, b)
    return snp.concatenate([vector, v * w - snp.sum(a * b, axis=-1, keepdims=True)], axis=-1)


def _canonical_parts(quat: Any) -> tuple[Any, Any]:
    """Return the vector and the number w of the quaternion with w >= 0."""
    w = quat[..., 3:]
    sign = snp.where(w < 0, -1, 1).astype(quat.dtype)
    return sign * quat[..., :3], sign * w


def _euler_angles(quat: Any, axes: list[int], is_intrinsic: bool) -> Any:
    """Return the angles around three fixed axes, in the order of rotating axes if `is_intrinsic`.

    The method is that of Bernardes and Viollet (2022): a rotation of the quaternion separates the
    sum and the difference of the first and the third angle.
    """
    i, j, k = axes
    is_symmetric = i == k
    if is_symmetric:
        k = 3 - i - j
    sign = (i - j) * (j - k) * (k - i) // 2
    w, x, y, z = quat[..., 3], quat[..., i], quat[..., j], quat[..., k] * sign
    a, b, c, d = (w, x, y, z) if is_symmetric else (w - y, x + z, y + w, z - x)
    middle = 2 * snp.arctan2(snp.hypot(c, d), snp.hypot(a, b))
    half_sum, half_difference = snp.arctan2(b, a), snp.arctan2(d, c)
    is_zero = snp.abs(middle) <= _DEGENERATE_ANGLE
    is_half_turn = snp.abs(middle - np.pi) <= _DEGENERATE_ANGLE
    is_degenerate = is_zero | is_half_turn
    opposite = 2 * half_difference if is_intrinsic else -2 * half_difference
    first, third = half_sum - half_difference, half_sum + half_difference
    if not is_symmetric:
        third, middle = third * sign, middle - np.pi / 2
    if is_intrinsic:
        first, third = third, first
    first = snp.where(is_zero, 2 * half_sum, snp.where(is_half_turn, opposite, first))
    third = snp.where(is_degenerate, 0, third)
    angles = snp.stack([first, middle, third], axis=-1)
    return (angles + np.pi) % (2 * np.pi) - np.pi
