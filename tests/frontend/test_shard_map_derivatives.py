"""Derivatives inside and outside of `shard_map`, of many functions and in many ways.

The numbers are compared with differences, measured in NumPy on the values of all devices at once.
JAX 0.10.2 gives the same ones wherever it gives any, with two exceptions. Its `jacrev` by a value
that devices share adds up what each device's results say, where the rows of a device are those of
its own results, as in `jacfwd`. And it does not return from a gradient of a branch that only some
devices take.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import PartitionSpec as P, lax
from shardir.errors import DifferentiateError
from shardir.frontend.errors import ShardingError
from shardir.interpret import run
from tests.frontend.device_bodies import AXIS, CASES, COUNT, Case, Local
from tests.frontend.device_derivatives import (
    W,
    X,
    inside,
    is_shared,
    measured,
    modes,
    whole,
    whole_measured,
)


@pytest.fixture(autouse=True)
def mesh() -> Iterator[sd.Mesh]:
    with sd.cpu_devices(COUNT):
        yield sd.make_mesh((COUNT,), (AXIS,))


def means(f: Any, *args: Any) -> Any:
    """What the reference makes of the program before it is partitioned."""
    arrays = [np.asarray(arg, "float32") for arg in args]
    lowered = sd.jit(f).lower(*arrays)
    made = run(lowered.module, arrays)
    return sd.tree.unflatten(sd.tree.structure(lowered.out_info), made)


def agree(made: Any, wanted: Any, mode: str = "") -> None:
    made, wanted = np.asarray(made), np.asarray(wanted)
    assert made.shape == wanted.shape, mode
    np.testing.assert_allclose(made, wanted, 2e-3, 2e-3, err_msg=mode)


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_derivatives_are_what_differences_say(case: Case, checked: bool, mesh: sd.Mesh) -> None:
    k = Local(sd, snp, lax, checked)

    def mapped(f: Any, out: Any) -> Any:
        return sd.shard_map(
            f, mesh=mesh, in_specs=(P(), P(AXIS)), out_specs=out, check_vma=checked
        )

    def is_one(mode: str) -> bool:
        return checked and is_shared(case, mode)

    def taken(w: Any, x: Any) -> Any:
        made = inside(case, k, w, x)
        return {mode: y if is_one(mode) else y[None] for mode, y in made.items()}

    specs = {mode: P() if is_one(mode) else P(AXIS) for mode in modes(case)}
    made, wanted = means(mapped(taken, specs), W, X), measured(case, checked)
    for mode in modes(case):
        agree(made[mode], wanted[mode][0] if is_one(mode) else wanted[mode], mode)

    if not checked and not case.unchecked:
        return

    def body(w: Any, x: Any) -> Any:
        y = case.body(k, w, x)
        return y if case.shared else y[None]

    outer = mapped(body, P() if case.shared else P(AXIS))
    made, wanted = means(lambda: whole(case, outer, sd, snp)), whole_measured(case, checked)
    for mode, got in made.items():
        if isinstance(got, tuple):
            for one, other in zip(got, wanted[mode], strict=False):
                agree(one, other, mode)
        else:
            agree(got, wanted[mode], mode)
