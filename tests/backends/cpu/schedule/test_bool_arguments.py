"""NumPy's bool needs no copy where every byte but 0 is taken for true, and only there."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu.kernels.rules import RULES
from shardir.backends.cpu.schedule import bool_arguments
from shardir.backends.cpu.schedule.build import compile_schedule
from tests.backends.cpu.phase_runner import run_rule
from tests.op_sample import Sample
from tests.samples import samples_of

MASK, NUMBERS = np.zeros((40, 60), bool), np.zeros((40, 60), np.float32)
READ = [
    sample
    for sample in samples_of(*bool_arguments.NONZERO_TEST_OPS)
    if any(type.dtype == "bool" for type in sample.operands)
]


def found(function: Any, *args: Any) -> tuple[int, ...]:
    module = sd.jit(function).lower(*args).after("dce")
    return compile_schedule(module.main).bool_arguments


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
def test_truth_that_is_compared_with_0(name: str, function: Any) -> None:
    assert found(function, MASK) == (0,), name


@pytest.mark.parametrize(
    ("name", "function"),
    {
        "copied": lambda m: snp.concatenate([m, m]),
        "copied and used": lambda m: (snp.flip(m), ~m),
        "sorted": lambda m: snp.sort(m),
        "seen as numbers": lambda m: m.astype(snp.uint8) + 1,
        "seen as bits": lambda m: m.view(snp.uint8) + 1,
        "in a loop": lambda m: sd.lax.fori_loop(0, 3, lambda _, x: x ^ m, m),
        "in a branch": lambda m: sd.lax.cond(m[0, 0], lambda: ~m, lambda: m | True),
    }.items(),
)
def test_truth_whose_bytes_count(name: str, function: Any) -> None:
    assert found(function, MASK) == (), name


def test_other_arguments_are_no_truth() -> None:
    assert found(lambda x, m, y: snp.where(m, x, y), NUMBERS, MASK, NUMBERS) == (1,)
    assert found(lambda m, n: (snp.roll(m, 1), m & n), MASK, MASK) == (1,)


@pytest.mark.parametrize("sample", READ, ids=lambda sample: sample.id)
def test_readers_take_every_byte_but_0_for_true(sample: Sample) -> None:
    (op,) = sample.function().body.ops
    arrays = sample.arrays()
    random = np.random.default_rng(0)
    odd = [np.array(x) for x in arrays]
    for x in odd:
        if x.dtype == bool:
            x.view(np.uint8)[...] *= random.choice([1, 2, 4, 128, 255], x.shape).astype(np.uint8)
    rule = RULES[op.name]
    for wanted, made in zip(run_rule(rule, op, arrays), run_rule(rule, op, odd), strict=True):
        assert made.tobytes() == wanted.tobytes()


def test_there_are_samples_of_reading() -> None:
    assert {"and", "select", "any", "all", "not", "convert", "eq"} <= {x.spec.name for x in READ}
