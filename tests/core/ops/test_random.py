"""Random bits agree with JAX for every sharding."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardir import ops, parse
from shardir.interpret.interpreter import run
from shardir.ir.operation import OpSpec, Symbol
from shardir.ir.types import TensorType
from shardir.ops.random import threefry
from shardir.ops.random.threefry import SCHEMES, Array
from shardir.passes import Pipeline
from tests.dtype_groups import UNSIGNED
from tests.op_evaluation import apply_reference, infer_types
from tests.op_sample import t

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "threefry.json").read_text("utf-8"))
KEY = t("key")


def run_reference(spec: OpSpec, *operands: Any, result: TensorType, **attrs: Any) -> Array:
    types = [KEY, *(t("i32") for _ in operands[1:])]
    assert infer_types(spec, *types, result=result, **attrs) == result
    array: Array = apply_reference(spec, *map(np.asarray, operands), result=result, **attrs)
    assert (array.shape, array.dtype) == (result.shape, result.numpy)
    return array


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bits_and_keys_agree_with_jax(scheme: str) -> None:
    key, expected = np.array(42, np.uint64), VECTORS[scheme]["42"]

    bits = run_reference(ops.random_bits, key, result=t("u32", 3, 4), scheme=Symbol(scheme))
    keys = run_reference(ops.random_split, key, result=t("key", 2), scheme=Symbol(scheme))

    assert bits.reshape(-1).tolist() == expected["bits32_3x4"]["values"]
    halves = [half for key in keys.tolist() for half in divmod(key, 1 << 32)]
    assert halves == expected["split2"]


def test_the_default_scheme_is_partitionable() -> None:
    key = np.array(1, np.uint64)

    plain = run_reference(ops.random_bits, key, result=t("u8", 5))
    stated = run_reference(ops.random_bits, key, result=t("u8", 5), scheme=Symbol("partitionable"))

    np.testing.assert_array_equal(plain, stated)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [*UNSIGNED, "key"])
def test_devices_generate_their_shards(dtype: str, scheme: str) -> None:
    whole_op = ops.random_split if dtype == "key" else ops.random_bits
    piece_op = ops.random_split_at if dtype == "key" else ops.random_bits_at
    key, name = np.array(3, np.uint64), Symbol(scheme)
    whole = run_reference(whole_op, key, result=t(dtype, 6, 4), scheme=name)

    piece = run_reference(piece_op, key, 2, 1, result=t(dtype, 2, 3), shape=(6, 4), scheme=name)

    np.testing.assert_array_equal(piece, whole[2:4, 1:4])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_batch_of_keys_agrees_with_single_keys(scheme: str) -> None:
    keys, name = np.array([[1, 2, 3]], np.uint64), {"scheme": Symbol(scheme)}

    together = apply_reference(ops.random_bits, keys, result=t("u16", 1, 3, 5), **name)

    alone = [run_reference(ops.random_bits, key, result=t("u16", 5), **name) for key in keys[0]]
    np.testing.assert_array_equal(together[0], alone)


def test_partitioned_bits_need_no_communication() -> None:
    text = (
        "mesh @m = [x=4, y=2]\n\n"
        "func @f(%k: key[]) -> (u32[8@x, 6@y], key[4@(y, x)]) {\n"
        "  %b = random_bits(%k, scheme=partitionable) : u32[8@x, 6@y]\n"
        "  %s = random_split(%k, scheme=original) : key[4]\n"
        "  return %b, %s\n}\n"
    ).replace("key[4@(y, x)]", "key[4@x]")
    before = parse(text)

    after = Pipeline.parse("propagate,reshard,partition,cse,dce")(before)

    names = {op.name for op in after.main.body.ops}
    assert {"random_bits_at", "random_split_at"} <= names
    assert not names & {"all-gather", "all-reduce", "all-to-all", "collective-permute"}
    key = np.array(99, np.uint64)
    for got, expected in zip(run(after, [key]), run(before, [key]), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_fold_in_of_a_batch_of_keys() -> None:
    keys, data = np.array([1, 2, 3], np.uint64), np.array([7, 8, 9], np.uint32)

    together = apply_reference(ops.random_fold_in, keys, data, result=t("key", 3))

    alone = [int(threefry.fold_in(k, d)) for k, d in zip(keys, data, strict=True)]
    assert together.tolist() == alone


def test_fold_in_is_a_hash_with_zero_first_words() -> None:
    keys, data = np.array([1, 2, 3], np.uint64), np.array([7, 8, 9], np.uint32)
    zeros, result = np.zeros_like(data), t("key", 3)

    hashed = apply_reference(ops.random_hash, keys, zeros, data, result=result)
    folded = apply_reference(ops.random_fold_in, keys, data, result=result)

    assert hashed.tolist() == folded.tolist()


def test_the_factors_of_bits_are_dimensions_of_the_result() -> None:
    factors = ops.random_bits.factors
    assert factors is not None

    rule = factors(KEY, result=t("u32", 4, 6), **ops.random_bits.rule_arguments({}))

    assert str(rule) == "([]) -> ([i, j]) {i=4, j=6}"


ORIGINAL = {"scheme": Symbol("original")}
MISFITS: list[tuple[OpSpec, tuple[TensorType, ...], dict[str, Any], str]] = [
    (ops.random_bits, (t("u32", 2),), {"result": t("u32", 4)},
     "random_bits: takes keys of key or key_rbg or key_urbg, got u32[2]"),
    (ops.random_bits, (KEY,), {},
     "random_bits: its result type is not determined; state it with result="),
    (ops.random_bits, (KEY,), {"result": t("f32", 4)},
     "random_bits: makes u8, u16, u32, u64, not f32"),
    (ops.random_bits, (KEY,), {"result": t("u32", 4), "scheme": Symbol("fast")},
     "random_bits: scheme=fast is not one of partitionable, original"),
    (ops.random_bits, (KEY,), {"result": t("u64", 1 << 31), **ORIGINAL},
     "random_bits: needs 4294967296 counters, and the original scheme has 32 bits for them; "
     "use scheme=partitionable"),
    (ops.random_split, (t("key", 2),), {"result": t("key", 4)},
     "random_split: key[4] does not begin with the dimensions of key[2]"),
    (ops.random_split, (t("key_rbg"),), {"result": t("key", 4)},
     "random_split: takes keys of key, got key_rbg[]"),
    (ops.random_split, (KEY,), {"result": t("u64", 4)},
     "random_split: makes keys, not u64"),
    (ops.random_fold_in, (KEY, t("u32", 2)), {},
     "random_fold_in: takes keys and as many u32, got key[] and u32[2]"),
    (ops.random_hash, (KEY, t("u32", 2), t("u32", 2)), {},
     "random_hash: takes keys and as many pairs of u32, got key[], u32[2] and u32[2]"),
    (ops.random_bits_at, (KEY, t("i32")), {"result": t("u8", 2, 2), "shape": (4, 4)},
     "random_bits_at: needs a start and a global extent for each dimension of u8[2, 2], "
     "got 1 start and shape=[4, 4]"),
    (ops.random_bits_at, (KEY, t("f32")), {"result": t("u8", 2), "shape": (4,)},
     "random_bits_at: starts are integers of rank 0, got f32[]"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "operands", "attrs", "message"), MISFITS)
def test_invalid_arguments_are_errors(
    spec: OpSpec, operands: tuple[TensorType, ...], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        infer_types(spec, *operands, **attrs)

    assert str(caught.value) == message
