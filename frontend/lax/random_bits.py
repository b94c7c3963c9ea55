"""Random bits of XLA's generators, whose state is an array; `shardir.random` has keys."""

from enum import IntEnum
from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import
from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.arrays.abstract_value import ArrayBase
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike, ShapeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import RandomError
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.shardings.resharding import apply_out_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import append_block, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_vmap import custom_vmap
from shardir.ir.module import Block
from shardir.ir.types import TensorType
from shardir.stablehlo.writing.attributes import MLIR_DTYPES

if TYPE_CHECKING:
    from shardir.stablehlo import reader
else:  # The first use of a function of `shardir.lax` imports this module; few programs need bits.
    reader = lazy_import("shardir.stablehlo.reader")


class RandomAlgorithm(IntEnum):
    """A generator of random bits; the default is Philox, as in XLA for CPUs."""

    RNG_DEFAULT = 0
    """Philox."""
    RNG_THREE_FRY = 1
    """Threefry-2x32."""
    RNG_PHILOX = 2
    """Philox-4x32."""


_STATES = {TensorType((4,), "u32"): "tensor<4xui32>", TensorType((2,), "u64"): "tensor<2xui64>"}
"""The StableHLO types of the states."""

_PROGRAM = """
func.func @main(%state: STATE) -> (STATE, RESULT) {
  %pairs = stablehlo.reshape %state : (STATE) -> PAIRS
  %words = stablehlo.bitcast_convert %pairs : (PAIRS) -> tensor<2xui64>
  %new, %bits = stablehlo.rng_bit_generator %words, algorithm = ALGORITHM : (tensor<2xui64>) -> (tensor<2xui64>, RESULT)
  %back = stablehlo.bitcast_convert %new : (tensor<2xui64>) -> PAIRS
  %next = stablehlo.reshape %back : (PAIRS) -> STATE
  return %next, %bits : STATE, RESULT
}
"""  # noqa: E501


@traceback_boundary
def rng_bit_generator(
    key: ArrayLike,
    shape: ShapeLike,
    dtype: DTypeLike = "uint32",
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: ShardingRequest = None,
) -> tuple[ArrayBase, ArrayBase]:
    """Return the next state and an array of random bits, equal to those of XLA for CPUs.

    `key` is the state: four words u32[4] or two words u64[2]. `out_sharding` is the sharding of the
    bits. The elements of a `vmap` share the first state of the batch, which is the only one that
    changes, as in JAX. Raise `RandomError` for another state, and for an element type that is not
    an unsigned integer.
    """
    new, bits = _generate_bits(key, shape, dtype, algorithm)
    return new, apply_out_sharding(bits, out_sharding)


@public(static=("shape", "dtype", "algorithm"), name="rng_bit_generator")
def _generate_bits(
    key: ArrayLike, shape: ShapeLike, dtype: DTypeLike, algorithm: RandomAlgorithm
) -> tuple[Tracer, Tracer]:
    state = as_tracer(key)
    type, name = state.value.type, dtype_of(dtype)
    if type not in _STATES:
        raise RandomError(
            with_location(
                f"the state of rng_bit_generator is {type}; it must be u32[4] or u64[2], for "
                "example four words of random.bits(key, (4,))"
            )
        )
    if name not in ("u8", "u16", "u32", "u64"):
        raise RandomError(
            with_location(
                f"rng_bit_generator makes unsigned integers, not {name}; convert them, or use "
                "a distribution of shardir.random"
            )
        )
    sizes = "".join(f"{size}x" for size in canonicalize_shape(shape))
    replaced = {
        "STATE": _STATES[type],
        "PAIRS": "tensor<2x2xui32>" if type.dtype == "u32" else "tensor<2xui64>",
        "RESULT": f"tensor<{sizes}{MLIR_DTYPES.get(name, name)}>",
        "ALGORITHM": RandomAlgorithm(algorithm).name.removeprefix("RNG_"),
    }
    text = _PROGRAM
    for word, stated in replaced.items():
        text = text.replace(word, stated)
    program = reader.read(text).main.body

    @custom_vmap
    def draw(state: PyTree) -> tuple[Tracer, Tracer]:
        new, bits = map(wrap_value, append_block(program, [state], Block((), (), ())))
        return new, bits

    @draw.def_vmap
    def draw_from_first(
        size: int, _: PyTree, states: Tracer
    ) -> tuple[tuple[Tracer, Tracer], tuple[bool, bool]]:
        new, bits = _generate_bits(states[0], (size, *canonicalize_shape(shape)), dtype, algorithm)
        return (states.at[0].set(new), bits), (True, True)

    made: tuple[Tracer, Tracer] = draw(state)
    return made
