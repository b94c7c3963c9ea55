"""Keys of four words as arrays of their words: equal values, also on several devices."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax, random
from shardir.interpret.interpreter import run
from shardir.ir.dtypes import RBG_KEYS
from shardir.ir.key_implementations import split_keys
from shardir.ir.module import Module
from shardir.passes import ExpandRbgKeys, Pipeline
from shardir.passes.rewriting import all_values
from shardir.sharding import NamedSharding, PartitionSpec as P
from shardir.stablehlo.printer import show
from shardir.text.parser import parse
from shardir.verify.verifier import verify

RBG, UNSAFE = random.key(3, impl="rbg"), random.key(5, impl="unsafe_rbg")


def words_of(arrays: list[Any]) -> list[Any]:
    return [split_keys(x, "key_rbg") if x.dtype.kind == "V" else x for x in arrays]


def expand(module: Module) -> Module:
    """Return the module without keys of four words, which `verify` accepts."""
    expanded = ExpandRbgKeys()(module)
    verify(expanded)
    values = [value for f in expanded.functions for value in all_values(f.body)]
    assert not any(value.type.dtype in RBG_KEYS for value in values)
    assert show(expanded)
    return expanded


def _draw_in_loop(key: Any) -> Any:
    def step(_: int, state: Any) -> Any:
        return random.split(state[0])[0], state[1] + random.uniform(state[0], (2,))

    return lax.fori_loop(0, 3, step, (key, snp.zeros(2)))


def _scan(key: Any) -> Any:
    return lax.scan(lambda k, each: (each, random.bits(k, (3,))), key, random.split(key, 4))


PROGRAMS: list[tuple[str, Callable[[Any], Any]]] = [
    ("bits", lambda k: random.bits(k, (8,))),
    ("split", lambda k: random.split(k, 3)),
    ("fold", lambda k: random.fold_in(k, 7)),
    ("normal", lambda k: random.normal(k, (3, 5))),
    ("no elements", lambda k: random.bits(k, (0, 4))),
    ("scalar", lambda k: random.bits(k, ())),
    ("one of several", lambda k: random.uniform(random.split(k, 4)[2], (4,))),
    ("vmap", lambda k: sd.vmap(lambda each: random.bits(each, (2, 3)))(random.split(k, 4))),
    ("keys of keys", lambda k: random.split(k, (2, 3)).T),
    ("where", lambda k: snp.where(random.bits(k) > 7, *random.split(k))),
    ("loop", _draw_in_loop),
    ("scan", _scan),
    ("branch", lambda k: lax.cond(random.bits(k) > 7, lambda: random.split(k)[0], lambda: k)),
    ("words of keys", lambda k: random.key_data(random.split(k, (2, 3)))),
    ("another key", lambda k: random.bits(k, (3,)) ^ random.bits(random.key(0), (3,))),
    ("words", lambda k: random.wrap_key_data(random.key_data(k) + 1, impl="rbg")),
]


@pytest.mark.parametrize("key", [RBG, UNSAFE], ids=["rbg", "unsafe_rbg"])
@pytest.mark.parametrize(("name", "fun"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_programs_compute_the_same(name: str, fun: Callable[[Any], Any], key: Any) -> None:
    module = sd.jit(fun).lower(key).module
    arrays = [np.asarray(key.read())]
    expected = words_of(run(module, arrays))
    for one, other in zip(run(expand(module), words_of(arrays)), expected, strict=True):
        np.testing.assert_array_equal(one, other)


SHAPES = [((8, 12), P("x", "y")), ((8, 6), P("x", "y")), ((16,), P(("x", "y"))), ((4, 8), P("y")),
          ((2, 7), P(None, "y"))]  # fmt: skip


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
@pytest.mark.parametrize(("shape", "spec"), SHAPES)
@pytest.mark.parametrize("has_several_keys", [False, True])
def test_devices_compute_their_own_elements(
    shape: tuple[int, ...], spec: P, dtype: str, has_several_keys: bool
) -> None:
    """The keys may be expanded before and after the program is partitioned."""
    mesh = sd.make_mesh((4, 2), ("x", "y"))

    def draw(key: Any) -> Any:
        if has_several_keys:
            drawn = sd.vmap(lambda each: random.bits(each, shape, dtype))(random.split(key, 2))
            return lax.with_sharding_constraint(drawn, NamedSharding(mesh, P(None, *spec)))
        drawn = random.bits(key, shape, dtype)
        return lax.with_sharding_constraint(drawn, NamedSharding(mesh, spec))

    with sd.config(enable_x64=True):
        module = sd.jit(draw).lower(RBG).module
    arrays = [np.asarray(RBG.read())]
    (expected,) = run(module, arrays)
    partition = Pipeline.parse("propagate,reshard,partition")
    for changed in (expand(partition(module)), partition(expand(module))):
        (found,) = run(changed, words_of(arrays))
        np.testing.assert_array_equal(found, expected)
        assert not any(op.spec.spmd and op.spec.effect for op in changed.main.body.walk())


def test_modules_without_such_keys_are_unchanged() -> None:
    module = sd.jit(lambda k: random.bits(k, (3,))).lower(random.key(0)).module
    assert ExpandRbgKeys()(module) is module


def test_the_words_of_arguments_and_results_are_their_last_dimension() -> None:
    module = parse("""\
mesh @m = [x=2]

func @f(
  %keys: key_rbg[8@x, 3],
  %x: f32[8],
) -> (key_rbg[8@x, 3], f32[8]) {
  %y = neg(%x) : f32[8]
  return %keys, %y
}
""")
    expanded = expand(module)
    stated = [expanded.main.body.params[0].sharding, expanded.main.result_shardings[0]]
    assert [len(each.dims) for each in stated if each is not None] == [3, 3]
    assert (
        str(expanded)
        == """\
mesh @m = [x=2]

func @f(
  %keys: u32[8@x, 3, 4],
  %x: f32[8],
) -> (u32[8@x, 3, 4], f32[8]) {
  %0 = transpose(%keys, perm=[2, 0, 1]) : u32[4, 8, 3]
  %y = neg(%x) : f32[8]
  %1 = transpose(%0, perm=[1, 2, 0]) : u32[8, 3, 4]
  return %1, %y
}
"""
    )


@pytest.mark.parametrize("key", [RBG, UNSAFE], ids=["rbg", "unsafe_rbg"])
def test_all_elements_of_a_batch_share_its_first_key(key: Any) -> None:
    keys = random.split(key, 3)
    bits = sd.vmap(lambda each: random.bits(each, (2,)))(keys)
    np.testing.assert_array_equal(bits, random.bits(keys[0], (3, 2)))
