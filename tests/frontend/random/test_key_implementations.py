"""Keys of `rbg` and `unsafe_rbg` give the numbers of JAX."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.checkpoints import load, save
from shardir.errors import ShardirError
from shardir.interop.jax import from_jax
from shardir.interpret.interpreter import run
from shardir.interpret.shards import slice_shard
from shardir.ir.key_implementations import join_words, split_keys
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axis, Sharding
from shardir.stablehlo.printer import show
from shardir.stablehlo.writing.writer import ExportError
from tests.frontend.random.rbg_programs import (
    IMPLEMENTATIONS,
    RECORD,
    SEED,
    draw_batches,
    draw_numbers,
)
from tests.optional_dependencies import require

RBG = sd.random.key(0, impl="rbg")
UNSAFE = sd.random.key(0, impl="unsafe_rbg")
KEYS = sd.random.split(RBG, 8)
WORDS = np.asarray(sd.random.key_data(KEYS))
KEYS_IN_STORAGE = join_words(WORDS, "key_rbg")
MESH = sd.make_mesh((4, 2), ("x", "y"))
RECORDS = json.loads(RECORD.read_text("utf-8"))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("kind", ["numbers", "batches"])
def test_numbers_are_those_of_jax(kind: str, implementation: str) -> None:
    def draw(key: Any) -> dict[str, Any]:
        return draw_numbers(snp, sd.random, key) if kind == "numbers" else draw_batches(sd, key)

    drawn = sd.jit(draw)(sd.random.key(SEED, impl=implementation))
    for name, found in drawn.items():
        record = RECORDS[implementation][name]
        expected = np.array(record["values"], record["dtype"]).reshape(record["shape"])
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), name
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, 1e-5, 1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(found, expected, name)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_imported_functions_draw_the_same_numbers(implementation: str) -> None:
    require("jax")
    import jax

    def draw(key: Any) -> Any:
        keys = jax.random.split(jax.random.fold_in(key, 3), 4)
        return jax.vmap(lambda k: jax.random.bits(k, (2,)))(keys), jax.random.key_data(keys)

    key = jax.random.key(5, impl=implementation)
    for ours, theirs in zip(from_jax(draw)(key), draw(key), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert sd.random.key_impl(sd.device_put(key)) == implementation


def test_bits_outside_of_jit_are_those_inside() -> None:
    for key in (RBG, UNSAFE):
        np.testing.assert_array_equal(
            sd.random.bits(key, (5, 3)), sd.jit(lambda k: sd.random.bits(k, (5, 3)))(key)
        )


def test_data_movement_keeps_keys() -> None:
    condition, places = np.arange(8) % 3 == 0, np.array([3, 1, 7])

    def move(library: Any, keys: Any) -> Any:
        first, second = keys, keys[::-1]
        return (
            library.where(condition[:, None] if first.ndim == 2 else condition, first, second),
            first[places],
            library.concatenate([first, second])[1::2],
            first.reshape(2, 4, *first.shape[1:]).swapaxes(0, 1),
            library.roll(first, 3, 0),
        )

    found = sd.jit(lambda keys: [sd.random.key_data(x) for x in move(snp, keys)])(KEYS)
    for keys, words in zip(found, move(np, WORDS), strict=True):
        np.testing.assert_array_equal(keys, words)
    np.testing.assert_array_equal(KEYS[::-1] == KEYS, (WORDS[::-1] == WORDS).all(-1))
    np.testing.assert_array_equal(KEYS != KEYS, np.zeros(8, bool))


def test_devices_without_a_source_receive_zero_keys() -> None:
    for keys in (KEYS, sd.random.split(sd.random.key(0), 8)):
        move = sd.pmap(lambda k: sd.lax.ppermute(k, "i", [(0, 1), (1, 0)]), axis_name="i")
        found, words = sd.random.key_data(move(keys)), sd.random.key_data(keys)
        np.testing.assert_array_equal(found[:2], words[1::-1])
        assert not np.any(found[2:])


def test_updates_and_pads_of_keys_in_the_interpreter() -> None:
    lowered = sd.jit(
        lambda keys: (
            keys.at[np.array([2, 5])].set(keys[0]),
            snp.pad(keys, 1, constant_values=keys[1]),
        )
    ).lower(KEYS)
    updated, padded = run(lowered.module, [KEYS_IN_STORAGE])
    np.testing.assert_array_equal(split_keys(updated, "key_rbg")[[2, 5]], WORDS[[0, 0]])
    np.testing.assert_array_equal(split_keys(padded, "key_rbg")[1:-1], WORDS)


def test_a_shorter_shard_of_keys_is_padded_with_set_bits() -> None:
    mesh = Mesh("m", (("x", 2),))
    sharding = Sharding.of("m", [(Axis.full("x", mesh),)])
    part = slice_shard(KEYS_IN_STORAGE[:3], sharding, mesh, 1)
    np.testing.assert_array_equal(split_keys(part, "key_rbg"), [WORDS[2], [0xFFFFFFFF] * 4])


def test_sharded_keys_draw_the_same_numbers() -> None:
    sharded = sd.device_put(KEYS, sd.NamedSharding(MESH, sd.P("x")))

    def draw(keys: Any) -> Any:
        return (
            sd.vmap(lambda k: sd.random.normal(k, (2,)))(keys),
            sd.random.key_data(sd.vmap(lambda k: sd.random.split(k, 3))(keys)),
            sd.random.key_data(keys[np.array([7, 2])]),
            sd.random.bits(keys[3], (16, 6)),
        )

    found = sd.jit(draw, out_shardings=sd.NamedSharding(MESH, sd.P()))(sharded)
    for ours, expected in zip(found, draw(KEYS), strict=True):
        np.testing.assert_array_equal(ours, expected)
    spread = sd.NamedSharding(MESH, sd.P("x", "y"))
    bits = sd.jit(lambda k: sd.random.bits(k, (16, 6)), out_shardings=spread)
    np.testing.assert_array_equal(bits(RBG), sd.random.bits(RBG, (16, 6)))
    assert "all-" not in bits.lower(RBG).compile().as_text()


def test_each_device_of_a_manual_computation_draws_from_its_key() -> None:
    alone = np.stack([sd.random.bits(key, (4,)) for key in KEYS])
    draw = sd.shard_map(
        lambda k: sd.random.bits(k[0], (1, 4)), mesh=MESH, in_specs=sd.P("x"), out_specs=sd.P("x")
    )
    np.testing.assert_array_equal(sd.jit(draw)(KEYS), alone[::2])
    np.testing.assert_array_equal(sd.pmap(lambda k: sd.random.bits(k, (4,)))(KEYS), alone)


def test_words_and_types() -> None:
    assert (str(RBG.dtype), str(UNSAFE.dtype), RBG.dtype.itemsize) == ("key<rbg>", "key<urbg>", 16)
    assert sd.random.key_dtype("rbg") == RBG.dtype != UNSAFE.dtype
    assert len({RBG.dtype, UNSAFE.dtype, sd.random.key(0).dtype, KEYS.dtype}) == 3
    assert snp.issubdtype(UNSAFE.dtype, sd.dtypes.prng_key)
    assert sd.random.key(7, dtype=RBG.dtype).dtype == RBG.dtype
    assert (sd.random.key_impl(RBG), sd.random.key_impl(UNSAFE)) == IMPLEMENTATIONS
    assert sd.random.PRNGKey(7, impl="rbg").tolist() == [0, 7, 0, 7]
    assert repr(sd.random.key(7, impl="rbg")) == "Array((), dtype=key<rbg>) overlaying:\n[0 7 0 7]"
    assert str(sd.typeof(KEYS)) == "key<rbg>[8]"
    wrapped = sd.random.wrap_key_data(WORDS, impl="unsafe_rbg")
    assert (wrapped.shape, str(wrapped.dtype)) == ((8,), "key<urbg>")
    np.testing.assert_array_equal(sd.random.key_data(wrapped), WORDS)
    np.testing.assert_array_equal(sd.random.key_data(pickle.loads(pickle.dumps(KEYS))), WORDS)


def test_the_default_implementation_interprets_words() -> None:
    split = sd.jit(lambda: sd.random.split(sd.random.PRNGKey(3)))
    assert split().shape == (2, 2)
    with sd.default_prng_impl("rbg"):
        words = sd.random.PRNGKey(3)
        assert (words.tolist(), sd.random.key_impl(words)) == ([0, 3, 0, 3], "rbg")
        assert split().shape == (2, 4)
        assert sd.random.key(0).dtype == sd.random.key_dtype() == RBG.dtype
        typed = sd.random.key(3)
        np.testing.assert_array_equal(sd.random.bits(words, (3,)), sd.random.bits(typed, (3,)))
    with sd.default_prng_impl("unsafe_rbg"):
        assert sd.random.key_impl(words) == "unsafe_rbg"


def test_checkpoints_keep_the_implementation(tmp_path: Path) -> None:
    require("safetensors")
    sharding = sd.NamedSharding(MESH, sd.P("x"))
    saved = {"sharded": sd.device_put(KEYS, sharding), "other": UNSAFE}
    save(tmp_path / "state", saved)
    found = load(tmp_path / "state", saved)
    np.testing.assert_array_equal(sd.random.key_data(found["sharded"]), WORDS)
    assert (found["sharded"].sharding, found["other"].dtype) == (sharding, UNSAFE.dtype)
    with pytest.raises(
        ShardirError, match=r"^'other' is key_urbg\[\] in the checkpoint .* key_rbg"
    ):
        load(tmp_path / "state", saved | {"other": RBG})


def test_text_round_trip() -> None:
    lowered = sd.jit(lambda k: (sd.random.split(k), sd.random.bits(k, (3,)))).lower(UNSAFE)
    text = lowered.as_text()
    assert "%k: key_urbg[]" in text
    assert str(sd.parse(text)) == text


def test_targets_without_such_keys_refuse_them(tmp_path: Path) -> None:
    lowered = sd.jit(lambda k: sd.random.bits(k, (3,))).lower(RBG)
    fix = "make keys of 'threefry2x32', as in random.key(seed, impl='threefry2x32')"
    with pytest.raises(ExportError) as exported:
        show(lowered.module)
    assert str(exported.value) == (
        "%k is key_rbg[], and StableHLO has no element type of 128 bits; run the pass "
        "expand-rbg-keys, which replaces keys of four words by their words"
    )
    with pytest.raises(ShardirError) as refused:
        lowered.emit("ipu", tmp_path)
    assert str(refused.value).partition("\n")[0] == (
        f"%k: key_rbg[] is of keys of four words, which IPU programs do not have; {fix}"
    )


def test_programs_for_gpus_take_the_words_of_keys() -> None:
    keys = sd.random.split(RBG, 2)
    lowered = sd.jit(lambda k: (sd.random.bits(k, (3,)), keys)).lower(RBG)
    emission = lowered.emission("gpu", selftest=True, arguments=[RBG])
    assert [str(each.shard_type) for each in emission.arguments] == ["u32[4]", "u32[2, 4]"]
    (_, captured), samples = emission.arguments, emission.samples
    assert samples is not None
    np.testing.assert_array_equal(captured.value, sd.random.key_data(keys))
    np.testing.assert_array_equal(samples.arguments[0], sd.random.key_data(RBG))
    np.testing.assert_array_equal(samples.results[0], sd.random.bits(RBG, (3,)))
    np.testing.assert_array_equal(samples.results[1], sd.random.key_data(keys))


FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: snp.stack([RBG, UNSAFE]),
     "random keys of key<rbg> and key<urbg> do not mix; make all keys with one implementation, as "
     "in random.key(seed, impl='rbg')"),
    (lambda: sd.random.key(0) == RBG,
     "random keys of key<fry> and key<rbg> do not mix; make all keys with one implementation, as "
     "in random.key(seed, impl='rbg')"),
    (lambda: KEYS.at[0].set(UNSAFE),
     "random keys of key<rbg> and key<urbg> do not mix; make all keys with one implementation, as "
     "in random.key(seed, impl='rbg')"),
    (lambda: snp.zeros(3).at[0].set(RBG),
     "random keys do not mix with numbers; draw numbers from a key with shardir.random, or read "
     "its words with shardir.random.key_data"),
    (lambda: sd.lax.select(True, RBG, UNSAFE),
     "random keys of key<rbg> and key<urbg> do not mix; make all keys with one implementation, as "
     "in random.key(seed, impl='rbg')"),
    (lambda: snp.pad(KEYS, 1),
     "pad cannot fill an array of random keys with i32; pass a key, as in "
     "constant_values=random.key(0, impl='rbg'), or pad with mode='edge'"),
    (lambda: snp.pad(KEYS, 1, constant_values=UNSAFE),
     "random keys of key<rbg> and key<urbg> do not mix; make all keys with one implementation, as "
     "in random.key(seed, impl='rbg')"),
    (lambda: sd.random.poisson(UNSAFE, 3.0),
     "poisson takes a key of 'threefry2x32', got one of 'unsafe_rbg'; make one with "
     "random.key(seed, impl='threefry2x32')"),
    (lambda: sd.random.wrap_key_data(WORDS[:, :2], impl="rbg"),
     "the words of keys of 'rbg' are u32[..., 4], got u32[8, 2]; make a key with random.key(seed)"),
    (lambda: sd.random.wrap_key_data(WORDS),
     "the words of keys of 'threefry2x32' are u32[..., 2], got u32[8, 4]; make a key with "
     "random.key(seed)"),
    (lambda: sd.random.normal(sd.random.PRNGKey(0, impl="rbg")),
     "expected a random key of 'threefry2x32', the setting default_prng_impl, got u32[4]; make a "
     "typed key of another implementation with random.wrap_key_data(words, impl='rbg')"),
    (lambda: sd.random.key(0, impl="philox4x32"),
     "random keys of 'philox4x32' are not supported; the implementations are 'threefry2x32', "
     "'rbg' and 'unsafe_rbg', as in random.key(seed, impl='unsafe_rbg')"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_invalid_keys_are_errors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShardirError) as caught:
        call()
    assert str(caught.value).partition("\n")[0] == message
