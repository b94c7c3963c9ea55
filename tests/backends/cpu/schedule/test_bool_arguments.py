"""NumPy bool arguments need no copy if all readers treat every nonzero byte as true."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.rules import RULES
from shardir.backends.cpu.schedule import bool_arguments
from shardir.backends.cpu.schedule.build import compile_schedule
from tests.backends.cpu.phase_runner import run_rule
from tests.op_sample import Sample
from tests.samples import samples_of

MASK, FLOATS = np.zeros((40, 60), bool), np.zeros((40, 60), np.float32)
READING_SAMPLES = [
    sample
    for sample in samples_of(*bool_arguments.NONZERO_TEST_OPS)
    if any(type.dtype == "bool" for type in sample.operands)
]


def uncopied_arguments(function: Any, *args: Any) -> tuple[int, ...]:
    module = sd.jit(function).lower(*args).after("dce")
    return compile_schedule(module.main, host_machine()).bool_arguments


@pytest.mark.parametrize(
    ("name", "function"),
    {
        "elementwise": lambda m: ~m,
        "reduced": lambda m: (m.any(), m.sum(0), m.all(1)),
        "turned": lambda m: snp.where(m.T, 1, 2),
        "a part": lambda m: m[3:, ::2] | m[:37, 1::2],
        "places": lambda m: (m.argmax(), m.argmin(0)),
    }.items(),
)
def test_masks_that_are_only_tested_are_not_copied(name: str, function: Any) -> None:
    assert uncopied_arguments(function, MASK) == (0,), name


@pytest.mark.parametrize(
    ("name", "function"),
    {
        "copied": lambda m: snp.concatenate([m, m]),
        "copied and used": lambda m: (snp.flip(m), ~m),
        "sorted": lambda m: snp.sort(m),
        "seen as numbers": lambda m: m.astype(snp.uint8) + 1,
        "seen as bits": lambda m: m.view(snp.uint8) + 1,
        "in a loop": lambda m: sd.lax.fori_loop(0, 3, lambda _, x: x ^ m, m),
        "tested only as a result": lambda m: (r := ~m, r.any(), snp.concatenate([m, m])),
        "in a branch": lambda m: sd.lax.cond(m[0, 0], lambda: ~m, lambda: m | True),
    }.items(),
)
def test_masks_whose_bytes_are_used_are_copied(name: str, function: Any) -> None:
    assert uncopied_arguments(function, MASK) == (), name


def test_only_bool_arguments_are_listed() -> None:
    assert uncopied_arguments(lambda x, m, y: snp.where(m, x, y), FLOATS, MASK, FLOATS) == (1,)
    assert uncopied_arguments(lambda m, n: (snp.roll(m, 1), m & n), MASK, MASK) == (1,)


@pytest.mark.parametrize("sample", READING_SAMPLES, ids=lambda sample: sample.id)
def test_reading_operations_treat_nonzero_bytes_as_true(sample: Sample) -> None:
    (op,) = sample.function().body.ops
    arrays = sample.arrays()
    random = np.random.default_rng(0)
    nonzero_bytes = [np.array(x) for x in arrays]
    for x in nonzero_bytes:
        if x.dtype == bool:
            x.view(np.uint8)[...] *= random.choice([1, 2, 4, 128, 255], x.shape).astype(np.uint8)
    rule = RULES[op.name]
    for expected, made in zip(
        run_rule(rule, op, arrays), run_rule(rule, op, nonzero_bytes), strict=True
    ):
        assert made.tobytes() == expected.tobytes()


def test_samples_cover_the_reading_operations() -> None:
    assert {"and", "select", "any", "all", "not", "convert", "eq"} <= {
        x.spec.name for x in READING_SAMPLES
    }
