"""Rules of dynamic slices, gathers and scatters."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir import ops
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.data_movement import gather, scatter
from shardir.ir.module import Op
from shardir.ir.operation import Symbol
from shardir.ir.types import TensorType
from tests.backends.cpu.kernels.random_layouts import Array, integer_array
from tests.backends.cpu.kernels.reference_check import check_against_reference, random_operations
from tests.backends.cpu.phase_runner import RuleHarness, make_op, run_rule

pytestmark = pytest.mark.sample(3)

RULES = {**gather.RULES, **scatter.RULES}


def slightly_out_of_bounds(op: Op, arrays: list[Array]) -> list[Array]:
    """Replace index operands by indices that are slightly out of bounds or in bounds."""
    rng = np.random.default_rng(arrays[0].size)
    return [
        operand
        if value.type.dtype not in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
        or (i == 0 or (i == len(arrays) - 1 and op.name == "scatter"))
        else rng.integers(0 if value.type.dtype[0] == "u" else -2, 8, operand.shape).astype(
            operand.dtype
        )
        for i, (operand, value) in enumerate(zip(arrays, op.operands, strict=True))
    ]


@pytest.mark.parametrize("name", sorted(RULES))
@settings(max_examples=100)
@given(st.data())
def test_gathers_and_scatters_equal_the_reference(name: str, data: st.DataObject) -> None:
    assert check_against_reference(
        data, RULES, data.draw(random_operations([name])), slightly_out_of_bounds
    )


def test_far_out_of_bounds_slices_are_clamped() -> None:
    x = TensorType((5, 6), "f32")
    for dtype, start_values in (("i64", (-(2**63), 2**63 - 1)), ("u64", (2**64 - 1, 2**63))):
        start = TensorType((), dtype)
        op = make_op(ops.dynamic_slice, x, start, start, result=x.with_shape((2, 3)))
        data = integer_array((5, 6), "f4")
        starts = [np.array(n, start.numpy) for n in start_values]
        (out,) = run_rule(RULES["dynamic_slice"], op, [data, *starts])
        first = 0 if dtype == "i64" else 3
        np.testing.assert_array_equal(out, data[first : first + 2, 3:])


def test_a_slice_of_one_element_is_gathered() -> None:
    x, start = TensorType((5,), "f32"), TensorType((), "i32")
    op = make_op(ops.dynamic_slice, x, start, result=x.with_shape((1,)))
    (out,) = run_rule(RULES["dynamic_slice"], op, [integer_array((5,), "f4"), np.array(3, "i4")])
    np.testing.assert_array_equal(out, integer_array((5,), "f4")[3:4])


def test_gathered_rows_of_a_table_match_numpy() -> None:
    table, indices = integer_array((50, 33), "f4"), integer_array((200,), "i4") % 60 - 5
    op = make_op(
        ops.gather,
        TensorType((50, 33), "f32"),
        TensorType((200, 1), "i32"),
        offset_dims=(1,),
        collapsed_dims=(0,),
        start_index_map=(0,),
        result=TensorType((200, 33), "f32"),
    )
    (out,) = run_rule(RULES["gather"], op, [table, indices[:, None]])
    np.testing.assert_array_equal(out, table[np.clip(indices, 0, 49)])


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 3, 700])
def test_scatter_add_does_not_depend_on_the_worker_count(width: int, workers: int) -> None:
    rng = np.random.default_rng(0)
    x = np.zeros((40, width), np.float32)
    updates = rng.standard_normal((300_000 // width, width)).astype(np.float32)
    indices = rng.integers(-3, 45, (len(updates), 1)).astype(np.int32)
    op = make_op(
        ops.scatter,
        *(TensorType(a.shape, str(a.dtype)[0] + "32") for a in (x, indices, updates)),
        update_window_dims=(1,),
        inserted_window_dims=(0,),
        scatter_dims=(0,),
        op=Symbol("add"),
    )
    (out,) = run_rule(RULES["scatter"], op, [x, indices, updates], workers=workers)
    inside = (indices[:, 0] >= 0) & (indices[:, 0] < 40)
    np.add.at(x, indices[inside, 0], updates[inside])
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize(("cache", "tasks"), [(1 << 10, 3), (1 << 30, 1)])
def test_scatters_to_cached_targets_use_one_task(cache: int, tasks: int) -> None:
    rng = np.random.default_rng(1)
    x, updates = np.zeros(5000, np.float32), rng.random(200_000, dtype=np.float32)
    indices = rng.integers(-20, 5020, (updates.size, 1)).astype(np.int32)
    op = make_op(
        ops.scatter,
        *(TensorType(a.shape, str(a.dtype)[0] + "32") for a in (x, indices, updates)),
        update_window_dims=(),
        inserted_window_dims=(0,),
        scatter_dims=(0,),
        op=Symbol("set"),
    )
    harness, out = (
        RuleHarness(3, replace(host_machine(), shared_cache_bytes=cache)),
        np.zeros(5000, np.float32),
    )
    views = [harness.view(each) for each in (x, indices, updates, out)]
    phases = RULES["scatter"](op, views[:3], views[3:], harness)
    assert phases is not None
    assert phases[-1].tasks == tasks
    harness.run(phases)
    inside = (indices[:, 0] >= 0) & (indices[:, 0] < 5000)
    for index, number in zip(indices[inside, 0], updates[inside], strict=True):
        x[index] = number
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("dtype", ["u8", "i16", "f32"])
def test_gathers_of_single_elements_match_numpy(dtype: str) -> None:
    kind, indices = TensorType((5, 70), dtype), np.arange(45, dtype=np.int32)[:, None] * 2 - 8
    op = make_op(
        ops.gather,
        kind,
        TensorType(indices.shape, "i32"),
        offset_dims=(0,),
        collapsed_dims=(1,),
        start_index_map=(1,),
        result=kind.with_shape((5, 45)),
    )
    x = np.arange(350).reshape(5, 70).astype(kind.numpy)
    (out,) = run_rule(RULES["gather"], op, [x, indices])
    np.testing.assert_array_equal(out, x[:, np.clip(indices[:, 0], 0, 69)])
