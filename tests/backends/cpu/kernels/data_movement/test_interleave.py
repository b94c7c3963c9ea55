"""Arrays with alternating elements are interleaved by one kernel, also with streaming stores."""

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import ops
from shardir.backends.cpu.kernels.data_movement.view_rules import RULES
from shardir.ir.types import TensorType, dtype_name
from tests.backends.cpu.kernels.random_layouts import integer_array
from tests.backends.cpu.phase_runner import RuleHarness, make_op, run_rule


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["u1", "i2", "f4", "c8", "bool"])
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("shape", [(63,), (64,), (1001,), (5, 70), (3, 4, 129), (40_000,)])
def test_interleaving_alternates_the_elements(
    kind: str, count: int, shape: tuple[int, ...]
) -> None:
    given = [integer_array((*shape, 1), kind, seed) for seed in range(count)]
    type = TensorType((*shape, 1), dtype_name(given[0].dtype))
    op = make_op(ops.concatenate, *[type] * count, dim=len(shape))
    (made,) = run_rule(RULES["concatenate"], op, given)
    np.testing.assert_array_equal(made, np.concatenate(given, -1))


def test_strided_rows_of_any_length_are_interleaved() -> None:
    x, y = integer_array((20, 300, 1), "f4"), integer_array((20, 300, 1), "f4", 1)
    type = TensorType((20, 100, 1), "f32")
    op = make_op(ops.concatenate, type, type, dim=2)
    parts = [x[:, 50:150], y[:, 7:107]]
    (made,) = run_rule(RULES["concatenate"], op, parts)
    np.testing.assert_array_equal(made, np.concatenate(parts, -1))


def test_contiguous_operands_use_one_phase_and_others_use_copies() -> None:
    type = TensorType((100, 1), "f32")
    op = make_op(ops.concatenate, type, type, dim=1)
    x, out = integer_array((100, 1), "f4"), np.zeros((100, 2), np.float32)
    every = np.zeros((200, 1), np.float32)[::2]
    for given, expected in (([x, x], ["interleave"]), ([x, every], ["copy", "copy"])):
        bench = RuleHarness()
        operands, result = [bench.view(each) for each in given], bench.view(out)
        phases = RULES["concatenate"](op, operands, [result], bench)
        assert phases is not None
        assert [phase.label for phase in phases] == expected


def test_large_arrays_are_interleaved() -> None:
    x = np.arange(1 << 23, dtype=np.float32)
    made = snp.stack([snp.asarray(x), snp.asarray(-x)], axis=-1)
    text = sd.jit(lambda x, y: snp.stack([x, y], -1)).lower(x, x).compile().as_text("schedule")
    assert "interleave" in text
    np.testing.assert_array_equal(made, np.stack([x, -x], -1))
