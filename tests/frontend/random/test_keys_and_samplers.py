"""Random numbers agree with JAX for every sharding; keys and their functions."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.config import (
    config,
    default_prng_impl,
    enable_custom_prng,
    legacy_prng_key,
)
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import NumberRangeError, RandomError, SettingError, ShapeError
from shardir.frontend.numpy import api as snp
from shardir.frontend.random import api as random
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.tracing.promotion import KEY
from shardir.ops.random import threefry
from tests.namespace import eagerly, run, same

pytestmark = pytest.mark.sample(3)

DATA = Path(__file__).parents[2] / "data"
VECTORS = json.loads((DATA / "random.json").read_text("utf-8"))
SEEDS = json.loads((DATA / "threefry.json").read_text("utf-8"))["seed_to_key"]
SCHEMES = ["partitionable", "original"]
TABLE = np.arange(12, dtype=np.int32).reshape(6, 2)
CHANCES = np.array([0.1, 0.2, 0.3, 0.4], np.float32)

CALLS: dict[str, Callable[[Any], Any]] = {
    "uniform_scalar": lambda key: random.uniform(key),
    "uniform_1": lambda key: random.uniform(key, (1,)),
    "uniform_5": lambda key: random.uniform(key, 5),
    "uniform_3x4": lambda key: random.uniform(key, (3, 4)),
    "uniform_2x3x4": lambda key: random.uniform(key, (2, 3, 4)),
    "uniform_1000": lambda key: random.uniform(key, (1000,)),
    "uniform_f16_10": lambda key: random.uniform(key, (10,), np.float16),
    "uniform_bf16_10": lambda key: random.uniform(key, (10,), ml_dtypes.bfloat16),
    "uniform_-2_3": lambda key: random.uniform(key, (10,), minval=-2.0, maxval=3.0),
    "normal_scalar": lambda key: random.normal(key),
    "normal_1": lambda key: random.normal(key, (1,)),
    "normal_5": lambda key: random.normal(key, (5,)),
    "normal_3x4": lambda key: random.normal(key, (3, 4)),
    "normal_2x3x4": lambda key: random.normal(key, (2, 3, 4)),
    "normal_1000": lambda key: random.normal(key, (1000,)),
    "randint_0_10": lambda key: random.randint(key, (12,), 0, 10),
    "randint_-5_1000": lambda key: random.randint(key, (12,), -5, 1000),
    "randint_u8_0_256": lambda key: random.randint(key, (12,), 0, 256, np.uint8),
    "randint_minmax": lambda key: random.randint(key, (6,), -(2**31), 2**31 - 1),
    "permutation_10": lambda key: random.permutation(key, 10),
    "permutation_1000": lambda key: random.permutation(key, 1000),
    "permutation_arr_6x2": lambda key: random.permutation(key, TABLE),
    "permutation_indep": lambda key: random.permutation(key, TABLE, independent=True),
    "choice_10_of_100": lambda key: random.choice(key, 100, (10,)),
    "choice_noreplace": lambda key: random.choice(key, 20, (10,), replace=False),
    "categorical": lambda key: random.categorical(key, np.log(CHANCES), shape=(12,)),
    "bernoulli_0.3": lambda key: random.bernoulli(key, 0.3, (16,)).astype(int),
    "exponential_8": lambda key: random.exponential(key, (8,)),
    "gumbel_8": lambda key: random.gumbel(key, (8,)),
    "truncated_normal_8": lambda key: random.truncated_normal(key, -2, 2, (8,)),
    "laplace_8": lambda key: random.laplace(key, (8,)),
    "uniform_f64_6": lambda key: random.uniform(key, (6,)),
    "normal_f64_6": lambda key: random.normal(key, (6,)),
    "randint_i64_6": lambda key: random.randint(key, (6,), 0, 10),
}

UNITS = {"normal": 3, "truncated": 3, "exponential": 1, "gumbel": 30, "laplace": 30}
"""By how many units in the last place the numbers may differ; all others are equal to the bit."""


@contextmanager
def drawing(scheme: str, wide: bool = False) -> Iterator[None]:
    with config(threefry_partitionable=scheme == "partitionable", enable_x64=wide):
        yield


def ulp_difference(got: npt.NDArray[Any], expected: dict[str, Any]) -> int:
    """Return the largest difference in units in the last place; 0 for equal bits."""
    kind = "uint16" if got.dtype == ml_dtypes.bfloat16 else got.dtype.name
    assert kind == expected["dtype"]
    assert list(got.shape) == expected["shape"]
    if (
        hashlib.sha256(np.ascontiguousarray(got).tobytes())
        .hexdigest()
        .startswith(expected["sha256"])
    ):
        return 0
    signed = got.reshape(-1).view(f"i{got.itemsize}")
    ends = np.concatenate([signed[:8], signed[-4:]]) if "head" in expected else signed
    bits = expected["head"] + expected["tail"] if "head" in expected else expected.get("bits")
    assert bits is not None, "integers differ"
    return int(abs(ends - np.array(bits, f"u{got.itemsize}").view(signed.dtype)).max())


@pytest.mark.parametrize("seed", ["42", "-1", "42 in 64 bits"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_numbers_agree_with_jax(scheme: str, seed: str) -> None:
    with drawing(scheme, wide="64" in seed):
        key = random.key(int(seed.split()[0]))
        vectors = VECTORS[scheme][seed]
        assert vectors.keys() <= CALLS.keys()
        for name, expected in vectors.items():
            units = ulp_difference(np.asarray(CALLS[name](key)), expected)
            assert units <= UNITS.get(name.split("_")[0], 0), name


@pytest.mark.parametrize("scheme", SCHEMES)
def test_numbers_agree_with_the_tutorial(scheme: str) -> None:
    def program(key: Any) -> Any:
        return snp.arange(24) + random.uniform(key, (24,))

    with drawing(scheme):
        for compute in (program, jit(program)):
            got = np.asarray(compute(random.key(42)))
            assert got.view(np.uint32).tolist() == VECTORS["programs"][scheme]


def words(key: Any) -> list[Any]:
    listed: list[Any] = np.asarray(random.key_data(key)).tolist()
    return listed


@pytest.mark.parametrize("name", [n for n in CALLS if n not in ("permutation_1000", "normal_1000")])
def test_raw_keys_draw_the_numbers_of_typed_keys(name: str) -> None:
    """The test compares `PRNGKey` with `key`, inside of `jit` and outside."""
    call = CALLS[name]
    typed, raw = random.key(7), random.PRNGKey(7)
    expected = np.asarray(call(typed))
    same(np.asarray(call(raw)), expected)
    same(np.asarray(jit(call)(typed)), expected)
    same(np.asarray(jit(call)(raw)), expected)


@pytest.mark.parametrize(("seed", "key"), SEEDS.items())
def test_keys_from_seeds_agree_with_jax(seed: str, key: list[int]) -> None:
    assert words(random.key(int(seed))) == key


def test_keys() -> None:
    key = random.key(3)
    assert key.dtype == KEY
    assert key.shape == ()
    assert words(key) == [0, 3]
    assert random.PRNGKey(3).dtype == np.uint32
    assert np.asarray(random.PRNGKey(3)).tolist() == [0, 3]
    assert words(random.key(2**32 + 5)) == [0, 5]
    assert words(random.key(-1)) == [0, 2**32 - 1]
    assert words(random.key(from_numpy(np.array(9)))) == [0, 9]
    assert words(jit(random.key)(9)) == [0, 9]
    assert words(random.wrap_key_data(np.array([1, 2], np.uint32))) == [1, 2]
    assert words(random.clone(key)) == [0, 3]
    assert random.key_impl(key) == "threefry2x32"
    with config(enable_x64=True):
        assert words(random.key(2**40 + 5)) == [256, 5]
        assert words(random.key(-1)) == [2**32 - 1] * 2
        assert words(random.key(from_numpy(np.array(2**40 + 5)))) == [256, 5]
        assert words(random.key(from_numpy(np.array(-1, np.int32)))) == [0, 2**32 - 1]


def test_splitting_and_folding() -> None:
    key = random.key(11)
    several = random.split(key, 3)
    assert several.shape == (3,)
    assert random.split(key, (2, 3)).shape == (2, 3)
    assert words(random.split(key, (2, 3)))[0] == words(random.split(key, 6))[:3]
    first, second = random.split(key)
    assert words(first) != words(second)
    for i in range(3):
        # The partitionable scheme has this property.
        assert words(several[i]) == words(random.fold_in(key, i))
    raw = random.split(random.PRNGKey(11), 3)
    assert raw.dtype == np.uint32
    assert np.asarray(raw).tolist() == words(several)
    assert np.asarray(random.fold_in(random.PRNGKey(11), 2)).tolist() == words(several[2])
    assert words(jit(lambda key, i: random.fold_in(key, i))(key, 2)) == words(several[2])
    folded = words(random.fold_in(key, 2**32 - 1))
    assert folded == words(random.fold_in(key, np.uint32(2**32 - 1)))
    assert folded == words(random.fold_in(key, -1))
    assert folded == words(jit(lambda key: random.fold_in(key, 2**32 - 1))(key))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_numbers_do_not_depend_on_the_sharding(scheme: str) -> None:
    mesh = make_mesh((4, 2), ("x", "y"))
    with drawing(scheme):
        for spec in (PartitionSpec("x", "y"), PartitionSpec(("x", "y"), None), PartitionSpec()):
            place = NamedSharding(mesh, spec)
            calls: list[Callable[[Any], Any]] = [
                lambda key: random.normal(key, (8, 4)),
                lambda key: random.randint(key, (8, 4), 0, 100),
            ]
            for call in calls:
                expected = np.asarray(call(random.key(5)))
                drawn = jit(call, out_shardings=place)(random.key(5))
                assert drawn.sharding.is_equivalent_to(place, 2)
                same(np.asarray(drawn), expected)


def test_randint_accepts_all_bounds() -> None:
    key = random.key(1)
    whole = np.asarray(random.randint(key, (1000,), -(2**31), 2**31))
    assert whole.min() < -(2**30)
    assert whole.max() > 2**30
    assert np.asarray(random.randint(key, (5,), 3, 3)).tolist() == [3] * 5
    assert np.asarray(random.randint(key, (5,), 3, 2)).tolist() == [3] * 5
    low, high = np.array([0, 10, 20], np.int32), np.array([5, 15, 25], np.int32)
    drawn = eagerly(lambda low, high: random.randint(key, (4, 3), low, high), low, high)
    assert ((drawn >= low) & (drawn < high)).all()
    same(run(lambda low, high: random.randint(random.key(1), (4, 3), low, high), low, high), drawn)
    bits = np.asarray(random.randint(key, (1000,), 0, 2**32, np.uint32))
    assert bits.dtype == np.uint32
    assert bits.max() > 2**31
    assert np.asarray(random.randint(key, (9,), -5, 5, np.int8)).dtype == np.int8


MOMENTS: list[tuple[Callable[[Any], Any], float, float]] = [
    (lambda key: random.uniform(key, (4000,)), 0.5, 1 / 12),
    (lambda key: random.normal(key, (4000,)), 0.0, 1.0),
    (lambda key: random.exponential(key, (4000,)), 1.0, 1.0),
    (lambda key: random.gumbel(key, (4000,)), 0.5772, 1.6449),
    (lambda key: random.laplace(key, (4000,)), 0.0, 2.0),
    (lambda key: random.logistic(key, (4000,)), 0.0, 3.2899),
    (lambda key: random.rayleigh(key, 2.0, (4000,)), 2.5066, 1.7168),
    (lambda key: random.weibull_min(key, 2.0, 3.0, (4000,)), 1.786, 0.4213),
    (lambda key: random.lognormal(key, 0.5, (4000,)), 1.1331, 0.3647),
    (lambda key: random.pareto(key, 8.0, (4000,)), 1.1429, 0.0272),
    (lambda key: random.rademacher(key, (4000,)), 0.0, 1.0),
    (lambda key: random.bernoulli(key, 0.25, (4000,)), 0.25, 0.1875),
    (lambda key: random.truncated_normal(key, -1.0, 1.0, (4000,)), 0.0, 0.2911),
    (lambda key: snp.arctan(random.cauchy(key, (4000,))), 0.0, 0.8225),
    (lambda key: random.choice(key, 3, (4000,), p=[0.5, 0.25, 0.25]), 0.75, 0.6875),
    (lambda key: random.categorical(key, np.log(CHANCES), shape=(4000,)), 2.0, 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("call", "mean", "variance"), MOMENTS)
def test_moments(call: Any, mean: float, variance: float) -> None:
    drawn = np.asarray(call(random.key(8))).astype(np.float64)
    assert abs(drawn.mean() - mean) < 5 * (variance / drawn.size) ** 0.5
    assert abs(drawn.var() / variance - 1) < 0.25


def test_choices_of_elements() -> None:
    key, x = random.key(2), np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    rows = np.asarray(random.choice(key, x, (5,)))
    assert {tuple(row) for row in rows} <= {tuple(row) for row in x}
    columns = np.asarray(random.choice(key, x, (2, 1), replace=False, axis=1))
    assert columns.shape == (2, 2, 1)
    picked = np.asarray(random.choice(key, 5, (5,), replace=False, p=np.full(5, 0.2, np.float32)))
    assert sorted(picked.tolist()) == [0, 1, 2, 3, 4]
    never = np.array([0.0, 1.0, 0.0], np.float32)
    assert np.asarray(random.choice(key, 3, (9,), p=never)).tolist() == [1] * 9
    shuffled = np.asarray(random.permutation(key, x, axis=1))
    assert sorted(shuffled[0].tolist()) == [1, 2, 3]
    same(shuffled[1], shuffled[0] + 3)


def test_categories_without_replacement() -> None:
    logits = np.log(np.array([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]], np.float32))
    drawn = np.asarray(random.categorical(random.key(0), logits, shape=(3, 2), replace=False))
    assert np.sort(drawn, 0).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert random.categorical(random.key(0), logits).shape == (2,)
    assert random.categorical(random.key(0), logits, axis=0).shape == (3,)
    assert random.categorical(random.key(0), logits, axis=0, shape=(7, 3)).shape == (7, 3)


FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: random.normal(np.ones(3, np.float32)),
     "expected a random key, got f32[3]; make one with random.key(seed)"),
    (lambda: random.normal(random.split(random.key(0))),
     "expected one random key, got an array of keys of shape (2,); take one of them, or draw from "
     "each with lax.map"),
    (lambda: random.key(1.5), "a seed is an integer, got f32[]"),
    (lambda: random.split(random.split(random.key(0))),
     "split takes one key, got an array of keys of shape (2,)"),
    (lambda: random.fold_in(random.key(0), np.array([1])), "fold_in takes an integer, got i32[1]"),
    (lambda: random.fold_in(random.key(0), 2**32),
     "fold_in takes an integer of 32 bits, got 4294967296; take the remainder, as data % 2**32"),
    (lambda: random.normal(random.key(0), (2,), int),
     "random floating-point numbers cannot be of type i32"),
    (lambda: random.bits(random.key(0), (2,), np.int32),
     "random bits are unsigned integers, not i32"),
    (lambda: random.randint(random.key(0), (2,), 0, 3, np.float32),
     "random integers cannot be of type f32"),
    (lambda: random.randint(random.key(0), (2,), np.float32(0), 3),
     "the bounds of randint are integers, got f32[]"),
    (lambda: random.choice(random.key(0), 3, (4,), replace=False),
     "choice cannot choose 4 of 3 elements without replacement; choose fewer, or pass "
     "replace=True"),
    (lambda: random.choice(random.key(0), np.ones(0), (2,)),
     "choice cannot choose 2 of 0 elements; pass an array with elements, or a positive number"),
    (lambda: random.choice(random.key(0), 3, p=np.ones(2, np.float32)),
     "choice takes a probability for each of 3 elements, got (2,)"),
    (lambda: random.permutation(random.key(0), np.float32(3)),
     "permutation takes an array, or a concrete integer"),
    (lambda: random.bernoulli(random.key(0), np.ones(3, np.float32), (2,)),
     "parameters of shape (3,) do not broadcast to numbers of shape (2,)"),
    (lambda: random.categorical(random.key(0), np.ones((2, 3), np.float32), shape=(3,)),
     "the shape (3,) of the draws does not end with that of logits (2,)"),
]  # fmt: skip


@pytest.mark.parametrize("shape", [(-2,), (2.5,), -1], ids=str)
def test_shapes_must_be_nonnegative_integers(shape: Any) -> None:
    for draw in (random.normal, random.uniform, random.bits, random.bernoulli):
        with pytest.raises(ShapeError, match=r"^shape .* has (a neg|the size 2.5, )"):
            draw(random.key(0), shape=shape)
    with pytest.raises(ShapeError):
        random.split(random.key(0), shape)


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_invalid_arguments_are_errors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((RandomError, NumberRangeError)) as caught:
        call()
    first, *rest = str(caught.value).split("\n")
    assert first == message
    assert "test_keys_and_samplers.py" in rest[0]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("shape", [(1,), (7,), (24,), (3, 5)])
def test_the_original_scheme_is_one_operation_of_threefry(
    dtype: str, shape: tuple[int, ...]
) -> None:
    def program(key: Any) -> Any:
        return random.bits(key, shape, dtype)

    with drawing("original", wide=True):
        key = random.key(3)
        text = jit(program).lower(key).as_text()
        assert "random_hash" in text
        width = np.dtype(dtype).itemsize * 8
        indices = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
        expected = threefry.random_bits(
            np.array(3, np.uint64), indices, indices.size, width, "original"
        )
        same(np.asarray(program(key)), expected)


def test_only_the_original_scheme_communicates() -> None:
    place = NamedSharding(make_mesh((8,), ("x",)), PartitionSpec("x"))
    for scheme in SCHEMES:
        with drawing(scheme):
            call = jit(lambda key: random.uniform(key, (24,)), out_shardings=place)
            text = call.lower(random.key(42)).compile().as_text()
        assert ("collective-permute" in text) is (scheme == "original")


def test_constants_of_keys_repeat_one_number_in_both_words() -> None:
    keys = random.split(random.key(3))
    for made in (
        lambda: snp.full(2, 7, dtype=keys.dtype),
        lambda: snp.full_like(keys, 7),
        lambda: jit(lambda x, n: snp.full_like(x, n))(keys, 7),
    ):
        np.testing.assert_array_equal(random.key_data(made()), np.full((2, 2), 7, np.uint32))
    filled = jit(lambda x: x.at[9].get(mode="fill"))(keys)
    np.testing.assert_array_equal(random.key_data(filled), np.full(2, 2**32 - 1, np.uint32))


def test_a_setting_refuses_keys_that_are_words() -> None:
    words = random.PRNGKey(3)
    expected = (
        "the key is u32[2], and the setting legacy_prng_key is {!r}; make typed keys with "
        'random.key(seed), or set legacy_prng_key="allow"'
    )
    for draw in (random.uniform, random.split, random.key_data, jit(random.normal)):
        with legacy_prng_key("warn"), pytest.warns(UserWarning, match="legacy") as warned:
            draw(words)
        assert str(warned[0].message).partition("\n")[0] == expected.format("warn")
        with legacy_prng_key("error"), pytest.raises(RandomError) as caught:
            draw(words)
        assert str(caught.value).partition("\n")[0] == expected.format("error")
        with legacy_prng_key("error"):
            draw(random.wrap_key_data(words))
        draw(words)
    with pytest.raises(SettingError, match=r"it must be 'allow', 'warn' or 'error'\n"):
        legacy_prng_key("deny")


def test_a_setting_makes_all_keys_typed() -> None:
    words = random.PRNGKey(3)
    for make in (lambda: random.PRNGKey(3), lambda: jit(random.PRNGKey)(3)):
        with enable_custom_prng():
            typed = make()
        np.testing.assert_array_equal(random.key_data(typed), words)
        assert typed.dtype == random.key(3).dtype
        assert make().dtype == np.uint32
    with enable_custom_prng():
        assert random.split(words).shape == (2,)
        assert random.fold_in(words, 1).shape == ()
    assert random.split(words).shape == (2, 2)


def test_an_offset_is_added_to_all_seeds() -> None:
    expected = random.key_data(random.key(20))
    with config(random_seed_offset=3):
        np.testing.assert_array_equal(random.key_data(random.key(17)), expected)
        traced = jit(lambda seed: random.key_data(random.key(seed)))(np.int32(17))
    np.testing.assert_array_equal(traced, expected)
    with config(random_seed_offset=np.int64(3)):
        assert config.random_seed_offset == 3
    for wrong in ("+-3", "1" * 5000, 1.5, True):
        with pytest.raises(SettingError, match=r"it must be an integer of at most 64 bits\n"):
            config.update("random_seed_offset", wrong)


def test_the_default_implementation_of_keys_is_a_setting() -> None:
    with default_prng_impl("threefry2x32"):
        assert random.key_impl(random.key(0)) == config.default_prng_impl
    for change in (default_prng_impl, lambda name: config.update("default_prng_impl", name)):
        with pytest.raises(SettingError) as caught:
            change("philox4x32")
        assert str(caught.value).startswith(
            "the setting default_prng_impl is 'philox4x32'; it must be 'threefry2x32', 'rbg' or "
            "'unsafe_rbg'"
        )
