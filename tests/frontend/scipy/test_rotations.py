"""Rotations agree with those of SciPy."""

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import random
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.scipy.spatial.transform import Rotation, Slerp
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.error_assertions import error_line
from tests.optional_dependencies import require

RNG = np.random.default_rng(0)
QUATERNIONS = RNG.standard_normal((6, 4)).astype(np.float32)
VECTORS = RNG.standard_normal((6, 3)).astype(np.float32)
SEQUENCES = ("xyz", "XYZ", "zxz", "ZYZ", "yzx", "YXZ", "xzx")


def scipy_rotation() -> Any:
    require("scipy")
    from scipy.spatial.transform import Rotation

    return Rotation


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=2e-6)


FORMS: dict[str, Callable[[Any], Any]] = {
    "matrix": lambda r: r.as_matrix(),
    "rotvec": lambda r: r.as_rotvec(),
    "degrees": lambda r: r.as_rotvec(degrees=True),
    "mrp": lambda r: r.as_mrp(),
    "quat": lambda r: r.as_quat(),
    "canonical": lambda r: r.as_quat(canonical=True),
    "scalar first": lambda r: r.as_quat(scalar_first=True),
    "magnitude": lambda r: r.magnitude(),
    "inverse": lambda r: r.inv().as_quat(),
    "product": lambda r: (r[:3] * r[3:]).as_matrix(),
    "vectors": lambda r: r.apply(VECTORS),
    "inverse vectors": lambda r: r.apply(VECTORS[0], inverse=True),
    "mean": lambda r: r.mean().as_matrix(),
    "weighted mean": lambda r: r.mean(np.arange(1.0, 7.0)).as_matrix(),
    **{f"euler {seq}": methodcaller("as_euler", seq) for seq in SEQUENCES},
    "euler degrees": lambda r: r.as_euler("xyz", degrees=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_rotations(form: str) -> None:
    expected = FORMS[form](scipy_rotation().from_quat(QUATERNIONS))
    rotations = sd.jit(Rotation.from_quat)(QUATERNIONS)
    assert len(rotations) == 6
    close(FORMS[form](rotations), expected)
    if form.split()[0] not in ("product", "mean", "weighted", "vectors"):
        close(FORMS[form](rotations[2]), expected[2])


@pytest.mark.parametrize("seq", [*SEQUENCES, "x", "Y", "xy", "ZX"])
@pytest.mark.parametrize("degrees", [False, True])
def test_angles_of_axes(seq: str, degrees: bool) -> None:
    angles = VECTORS[:, : len(seq)]
    found = Rotation.from_euler(seq, angles, degrees)
    close(found.as_matrix(), scipy_rotation().from_euler(seq, angles, degrees).as_matrix())
    assert Rotation.from_euler(seq, angles[0]).single
    assert Rotation.from_euler("x", np.float32(0.5)).single


@pytest.mark.parametrize("seq", ["xyz", "ZYX", "zxz", "ZXZ"])
@pytest.mark.parametrize("middle", [0, np.pi / 2, -np.pi / 2, np.pi])
def test_parallel_axes(seq: str, middle: float) -> None:
    """The angles are those of the rotation, and the third one is 0 if the axes are parallel."""
    with sd.config(enable_x64=True):
        rotation = Rotation.from_euler(seq, np.array([0.1, middle, 0.3]))
        angles = rotation.as_euler(seq)
        again = Rotation.from_euler(seq, angles)
        np.testing.assert_allclose(again.as_matrix(), rotation.as_matrix(), atol=1e-7)
        is_parallel = (seq[0] == seq[2]) == (abs(middle) in (0, np.pi))
        assert (float(angles[2]) == 0) == is_parallel


def test_other_forms_become_quaternions() -> None:
    expected = Rotation.from_quat(QUATERNIONS).as_matrix()
    forms = {
        "from_matrix": expected,
        "from_rotvec": Rotation.from_quat(QUATERNIONS).as_rotvec(),
        "from_mrp": Rotation.from_quat(QUATERNIONS).as_mrp(),
    }
    for name, form in forms.items():
        close(getattr(Rotation, name)(form).as_matrix(), expected)
        close(getattr(Rotation, name)(form[1]).as_matrix(), expected[1])
    close(Rotation.from_rotvec(VECTORS * 40, degrees=True).as_matrix(),
          scipy_rotation().from_rotvec(VECTORS * 40, degrees=True).as_matrix())  # fmt: skip


def test_half_turns_have_a_matrix_with_each_largest_element() -> None:
    for quat in np.eye(4, dtype=np.float32):
        close(Rotation.from_matrix(Rotation(quat).as_matrix()).quat, quat)


@pytest.mark.parametrize("size", [0, 1e-5, 0.9e-3, 1.1e-3])
def test_small_angles_have_exact_values_and_derivatives(size: float) -> None:
    vector = np.array([size, 0, 0], np.float32)
    jacobian = sd.jacfwd(lambda v: Rotation.from_rotvec(v).as_rotvec())(vector)
    np.testing.assert_allclose(jacobian, np.eye(3), atol=1e-6)
    np.testing.assert_allclose(Rotation.from_rotvec(vector).as_rotvec(), vector, rtol=1e-5)
    turn = sd.jacrev(lambda v: Rotation.from_rotvec(v).apply(snp.array([0.0, 1.0, 0.0])))(vector)
    np.testing.assert_allclose(turn[2], [np.cos(size), 0, 0], atol=1e-3)


def test_interpolation_of_rotations() -> None:
    from scipy.spatial.transform import Slerp as Expected

    times, at = np.array([0.0, 1.0, 3.0, 3.5]), np.array([0.0, 0.25, 1.0, 2.9, 3.5])
    expected = Expected(times, scipy_rotation().from_quat(QUATERNIONS[:4]))(at).as_matrix()
    slerp = Slerp.init(times, Rotation.from_quat(QUATERNIONS[:4]))
    close(sd.jit(lambda s, at: s(at).as_matrix())(slerp, at), expected)
    close(slerp(at[3]).as_matrix(), expected[3])


def test_rotations_are_containers_of_sharded_arrays() -> None:
    mesh = sd.make_mesh((2,), ("x",))
    quat = sd.device_put(QUATERNIONS, NamedSharding(mesh, P("x")))
    rotated = sd.jit(lambda r, v: r.apply(v))(Rotation(quat), VECTORS)
    assert rotated.sharding.spec == P("x")
    close(rotated, Rotation(QUATERNIONS).apply(VECTORS))
    norms = sd.vmap(lambda r: r.magnitude())(Rotation.from_quat(QUATERNIONS))
    close(norms, Rotation.from_quat(QUATERNIONS).magnitude())


def test_identity_random_rotations_and_concatenation() -> None:
    assert Rotation.identity().quat.tolist() == [0, 0, 0, 1]
    assert Rotation.identity(2).quat.shape == (2, 4)
    one, two = Rotation.random(random.key(0)), Rotation.random(random.key(0), 2)
    assert (one.single, two.single) == (True, False)
    joined = Rotation.concatenate([one, two])
    close(joined.quat, np.concatenate([one.quat[None], two.quat]))
    close(np.linalg.norm(joined.quat, axis=-1), np.ones(3))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: Rotation.from_euler("xyz", VECTORS[:, :2]), ShapeError,
         "from_euler got angles of shape (6, 2) for the axes 'xyz'; the last dimension has the "
         "size 3"),
        (lambda: Rotation.from_euler("xYz", VECTORS), ArgumentError,
         "'xYz' is no sequence of one to three axes; write axes such as 'xyz', or 'XYZ' if they "
         "rotate too, without the same axis twice in a row"),
        (lambda: Rotation.from_quat(QUATERNIONS).as_euler("xxz"), ArgumentError,
         "'xxz' is no sequence of three axes; write axes such as 'xyz', or 'XYZ' if they rotate "
         "too, without the same axis twice in a row"),
        (lambda: Rotation.from_matrix(QUATERNIONS), ShapeError,
         "from_matrix got matrix of shape (6, 4); its last sizes are 3, 3"),
        (lambda: len(Rotation.identity()), ArgumentError, "one rotation has no length"),
        (lambda: Rotation.identity()[0], ArgumentError, "one rotation has no items"),
        (lambda: Slerp([0.0, 1.0], Rotation.identity(2)), ArgumentError,
         "Slerp takes the fields of an interpolation: times, timedelta, rotations and rotvecs; "
         "call Slerp.init(times, rotations) to compute them from rotations at given times"),
        (lambda: Slerp.init([0.0], Rotation.identity()), ShapeError,
         "Slerp got times of shape (1,) and 1 rotations; it interpolates between two or more "
         "rotations with one time each"),
        (lambda: Slerp.init([0.0, 1.0, 2.0], Rotation.identity(2)), ShapeError,
         "Slerp got times of shape (3,) and 2 rotations; it interpolates between two or more "
         "rotations with one time each"),
    ],
)  # fmt: skip
def test_errors_of_rotations(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    assert error_line(error, call) == text
