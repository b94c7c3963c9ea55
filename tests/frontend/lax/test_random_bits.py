"""`lax.rng_bit_generator`: random bits equal to those of JAX on CPUs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax
from shardir.frontend.errors import RandomError
from tests.optional_dependencies import require

WORDS = np.array([1, 2, 2**32 - 1, 2**31], np.uint32)


@pytest.mark.sample(3)
@pytest.mark.parametrize("algorithm", ["RNG_DEFAULT", "RNG_THREE_FRY", "RNG_PHILOX"])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((3, 5), "uint32"), ((), "uint16"), ((7,), "uint8"), (4, "uint32")]
)
def test_bits_are_those_of_jax(algorithm: str, shape: Any, dtype: str) -> None:
    require("jax")
    import jax

    def draw(lax: Any, state: Any) -> Any:
        sizes = (shape,) if isinstance(shape, int) else shape
        return lax.rng_bit_generator(state, sizes, dtype, getattr(lax.RandomAlgorithm, algorithm))

    expected = draw(jax.lax, WORDS)
    for made in (draw(lax, WORDS), sd.jit(lambda state: draw(lax, state))(WORDS)):
        for one, other in zip(made, expected, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_states_of_two_wide_words_have_the_same_bits() -> None:
    with sd.enable_x64(True):
        new, bits = lax.rng_bit_generator(WORDS.view(np.uint64), (6,))
        narrow, expected = lax.rng_bit_generator(WORDS, (6,))
        np.testing.assert_array_equal(bits, expected)
        np.testing.assert_array_equal(np.asarray(new).view(np.uint32), narrow)
        assert np.asarray(lax.rng_bit_generator(new, (2, 3), "uint64")[1]).dtype == np.uint64


@pytest.mark.parametrize("mapped", [1, 2])
def test_elements_of_a_batch_share_its_first_state(mapped: int) -> None:
    states = np.arange(12, dtype=np.uint32).reshape((3, 4))
    draw = sd.vmap(lambda state: lax.rng_bit_generator(state, (2,)))
    new, bits = draw(states) if mapped == 1 else (x[0] for x in sd.vmap(draw)(states[None]))
    next_state, expected = lax.rng_bit_generator(states[0], (3, 2))
    np.testing.assert_array_equal(bits, expected)
    np.testing.assert_array_equal(new, [np.asarray(next_state), states[1], states[2]])


FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: lax.rng_bit_generator(WORDS[:2], (3,)),
     "the state of rng_bit_generator is u32[2]; it must be u32[4] or u64[2], for example four "
     "words of random.bits(key, (4,))"),
    (lambda: lax.rng_bit_generator(WORDS, (3,), "float32"),
     "rng_bit_generator makes unsigned integers, not f32; convert them, or use a distribution of "
     "shardir.random"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_invalid_calls_are_errors(call: Any, message: str) -> None:
    with pytest.raises(RandomError) as caught:
        call()
    assert str(caught.value).split("\n")[0] == message
