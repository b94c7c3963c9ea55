"""Threefry generates the bits of JAX, for whole arrays and for shards."""

import hashlib
import json
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardir.ops.random import threefry
from shardir.ops.random.threefry import SCHEMES, Array

VECTORS = json.loads((Path(__file__).parents[3] / "data" / "threefry.json").read_text("utf-8"))
SEEDS = [*VECTORS["original"]]


def words(pairs: Any) -> Array:
    """Return keys made of a flat list of 32-bit halves."""
    return np.array(pairs, np.uint64).reshape(-1, 2) @ np.array([1 << 32, 1], np.uint64)


def key_of(seed: str) -> Array:
    """Return the key, of rank 0, that JAX makes of a seed."""
    key: Array = words(VECTORS["seed_to_key"][seed])[0]
    return key


def every(*shape: int) -> Array:
    return threefry.window_indices(shape, (0,) * len(shape), shape)


def agrees(got: Array, expected: dict[str, Any]) -> bool:
    assert got.dtype.name == expected["dtype"]
    assert list(got.shape) == expected["shape"]
    digest = hashlib.sha256(np.ascontiguousarray(got).tobytes()).hexdigest()
    return digest.startswith(expected["sha256"])


def test_the_hash_has_the_published_values() -> None:
    for vector in VECTORS["hash"]:
        counter = [np.array([c], np.uint32) for c in vector["ctr"]]

        outs = threefry.hash_pairs(words(vector["key"]), *counter)

        assert [int(out[0]) for out in outs] == vector["out"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", SEEDS)
def test_keys_split_and_fold_as_in_jax(scheme: str, seed: str) -> None:
    key, expected = key_of(seed), VECTORS[scheme][seed]

    for name, shape in (("split2", (2,)), ("split5", (5,)), ("split_2x3", (2, 3))):
        made = threefry.split_key(key, every(*shape), prod(shape), scheme)
        assert made.shape == shape
        assert made.reshape(-1).tolist() == words(expected[name]).tolist()

    for data, folded in expected["fold_in"].items():
        assert threefry.fold_in(key, np.array(int(data), np.uint32)) == words(folded)[0]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", SEEDS)
def test_bits_agree_with_jax(scheme: str, seed: str) -> None:
    key, expected = key_of(seed), VECTORS[scheme][seed]
    names = [name for name in expected if name.startswith("bits")]
    assert len(names) == 8

    for name in names:
        width = int(name.removeprefix("bits").split("_")[0])
        shape = expected[name]["shape"]
        assert agrees(
            threefry.random_bits(key, every(*shape), prod(shape), width, scheme), expected[name]
        )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_64_bits_agree_with_jax(scheme: str) -> None:
    made = threefry.random_bits(key_of("42"), every(6), 6, 64, scheme)

    assert agrees(made, VECTORS[f"{scheme}_x64_seed42"]["bits64_6"])


@pytest.mark.parametrize(("scheme", "width"), [*product(SCHEMES, (8, 16, 32, 64))])
def test_a_shard_has_the_bits_of_the_global_array(scheme: str, width: int) -> None:
    key, shape = np.array(7, np.uint64), (5, 3, 7)
    whole = threefry.random_bits(key, every(*shape), prod(shape), width, scheme)

    indices = threefry.window_indices(shape, (1, 0, 4), (3, 2, 3))
    piece = threefry.random_bits(key, indices, prod(shape), width, scheme)

    np.testing.assert_array_equal(piece, whole[1:4, 0:2, 4:7])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_many_keys_and_long_arrays_are_hashed_in_chunks(scheme: str) -> None:
    keys = threefry.split_key(key_of("1"), every(40_000), 40_000, scheme)
    data = np.arange(40_000, dtype=np.uint32)

    together = threefry.fold_in(keys, data)

    assert len(set(keys.tolist())) == 40_000
    for i in (0, 16_383, 16_384, 39_999):
        assert together[i] == threefry.fold_in(keys[i], data[i])


def test_elements_past_2_to_the_32_use_the_high_counter() -> None:
    far = np.array([2**32 + 5], np.uint64)

    (far_bits,) = threefry.random_bits(key_of("0"), far, 2**33, 64, "partitionable")
    (near,) = threefry.random_bits(key_of("0"), far - 2**32, 2**33, 64, "partitionable")

    counter = np.array([1], np.uint32), np.array([5], np.uint32)
    assert far_bits == threefry.join_words(*threefry.hash_pairs(key_of("0"), *counter))[0]
    assert far_bits != near


def test_a_window_before_the_array_is_clamped() -> None:
    indices = threefry.window_indices((4, 3), (-1, 1), (2, 2))
    assert indices.tolist() == [[1, 2], [4, 5]]
