"""Rules of primitives that move, concatenate, reduce, sort and contract elements."""

from typing import Any

from shardir.frontend import lax
from shardir.frontend.interop.rules import Equation, Scalar, rule, shaped
from shardir.frontend.interop.shardings import typed
from shardir.frontend.lax.folding import fold
from shardir.frontend.operands import convert, splat
from shardir.types import TensorType

shaped("squeeze", lax.squeeze, dimensions="dimensions")
shaped("expand_dims", lax.expand_dims, dimensions="dimensions")
shaped("transpose", lax.transpose, permutation="permutation")
shaped("rev", lax.rev, dimensions="dimensions")
shaped("pad", lax.pad, padding_config="padding_config")
shaped("tile", lax.tile, reps="reps")
shaped("split", lax.split, sizes="sizes", axis="axis")
shaped("slice", lax.slice,
       start_indices="start_indices", limit_indices="limit_indices", strides="strides")  # fmt: skip
shaped("top_k", lambda x, k, axis=-1: lax.top_k(x, k, axis=axis), k="k", axis="axis")


@rule("broadcast_in_dim")
def _broadcast(equation: Equation) -> Any:
    x = equation.operands[0]
    if isinstance(x, Scalar):
        result = x.tracer(equation.shape())
    elif x.shape == equation.shape():
        result = x
    else:
        dims = equation.params["broadcast_dimensions"]
        result = lax.broadcast_in_dim(x, equation.shape(), dims)
    return typed(result, equation.params.get("sharding"))


@rule("reshape")
def _reshaped(equation: Equation) -> Any:
    (x,) = equation.tracers
    result = lax.reshape(x, equation.shape(), equation.params.get("dimensions"))
    return typed(result, equation.params.get("sharding"))


@rule("concatenate")
def _joined(equation: Equation) -> Any:
    return lax.concatenate(equation.tracers, equation.params["dimension"])


@rule("stack")
def _stacked(equation: Equation) -> Any:
    return lax.stack(equation.tracers, equation.params["axis"])


@rule("unstack")
def _unstacked(equation: Equation) -> Any:
    return lax.unstack(equation.tracers[0], equation.params["axis"])


@rule("iota")
def _counted(equation: Equation) -> Any:
    result = lax.broadcasted_iota(
        equation.results[0].dtype, equation.shape(), equation.params["dimension"]
    )
    return typed(result, equation.params.get("sharding"))


@rule("empty", "empty2")
def _empty(equation: Equation) -> Any:
    """Emit zeros for JAX's uninitialized arrays."""
    result = splat(0, TensorType(equation.shape(), equation.dtype()))
    return typed(result, equation.params.get("out_sharding"))


@rule("dynamic_slice")
def _sliced(equation: Equation) -> Any:
    x, *starts = equation.tracers
    return lax.dynamic_slice(x, starts, equation.params["slice_sizes"])


@rule("dynamic_update_slice")
def _updated(equation: Equation) -> Any:
    x, update, *starts = equation.tracers
    return lax.dynamic_update_slice(x, update, starts)


def _reduced(name: str, function: Any) -> None:
    def reduce(equation: Equation) -> Any:
        result = function(*equation.tracers, equation.params["axes"])
        return typed(result, equation.params.get("out_sharding"))

    rule(name)(reduce)


for _name in ("sum", "prod", "max", "min", "and", "or"):
    _reduced(f"reduce_{_name}", getattr(lax, f"reduce_{_name}"))


@rule("reduce_xor")
def _reduced_xor(equation: Equation) -> Any:
    (x,) = equation.tracers
    none = splat(0, x.value.type.with_shape(()))
    return lax.reduce(x, none, lax.bitwise_xor, equation.params["axes"])


@rule("reduce")
def _folded(equation: Equation) -> Any:
    """Emit a reduction by a function that JAX traced."""
    count = len(equation.results)
    arrays, firsts = equation.tracers[:count], equation.tracers[count:]
    program = equation.params["jaxpr"]

    def combine(first: Any, second: Any) -> Any:
        return tuple(equation.reader.read(program, [*first, *second]))

    dims = tuple(equation.params["dimensions"])
    return fold(combine, arrays, firsts, dims, single=False)


def _position(name: str, function: Any) -> None:
    def position(equation: Equation) -> Any:
        (x,) = equation.tracers
        (axis,) = equation.params["axes"]
        return function(x, axis, equation.params["index_dtype"])

    rule(name)(position)


_position("argmax", lax.argmax)
_position("argmin", lax.argmin)

for _name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    shaped(_name, getattr(lax, _name), axis="axis", reverse="reverse")


@rule("sort")
def _sorted(equation: Equation) -> Any:
    params = equation.params
    return lax.sort(
        tuple(equation.tracers), params["dimension"], params["is_stable"], params["num_keys"]
    )


@rule("dot_general")
def _contracted(equation: Equation) -> Any:
    x, y = equation.tracers
    wide = equation.dtype()
    if x.value.type.dtype != y.value.type.dtype:
        x, y = convert(x, wide), convert(y, wide)
    result = lax.dot_general(
        x,
        y,
        equation.params["dimension_numbers"],
        preferred_element_type=equation.results[0].dtype,
    )
    return typed(result, equation.params.get("out_sharding"))


@rule("conv_general_dilated")
def _convolved(equation: Equation) -> Any:
    params = equation.params
    x, w = equation.tracers
    numbers = params["dimension_numbers"]
    return lax.conv_general_dilated(
        x,
        w,
        params["window_strides"],
        params["padding"],
        params["lhs_dilation"],
        params["rhs_dilation"],
        (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec),
        params["feature_group_count"],
        params["batch_group_count"],
        None,
        equation.results[0].dtype,
    )


@rule("fft")
def _transformed(equation: Equation) -> Any:
    (x,) = equation.tracers
    kind = equation.params["fft_type"]
    name = getattr(kind, "name", str(kind))
    return lax.fft(x, name, equation.params["fft_lengths"])
