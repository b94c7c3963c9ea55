"""Normalization of modules before the comparison with modules that were printed as StableHLO and
read.

Some operations have no counterpart in StableHLO and are several operations after reading. Omitted
attributes get their default values. The letters of contractions are read in StableHLO's order.
"""

from dataclasses import replace
from string import ascii_letters
from typing import Any

from shardir.ir.builder import substitute
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.operation import Attr, Symbol
from shardir.ir.types import COMPLEX
from tests.dtype_groups import FLOATS, UNSIGNED

MLP = """\
module @jit_mlp attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["data"=4, "model"=2]>
  func.func public @main(%arg0: tensor<32x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, \
{"model"}]>}, %arg1: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}) \
-> (tensor<16xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [0], \
precision = [DEFAULT, DEFAULT] : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
    %1 = call @relu(%0) : (tensor<16x64xf32>) -> tensor<16x64xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.add across dimensions = [1] : \
(tensor<16x64xf32>, tensor<f32>) -> tensor<16xf32>
    return %2 : tensor<16xf32>
  }
  func.func private @relu(%arg0: tensor<16x64xf32>) -> tensor<16x64xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x64xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<16x64xf32>
    return %1 : tensor<16x64xf32>
  }
}
"""
"""Two layers as JAX prints them."""

DEFAULTS: dict[str, dict[str, Attr]] = {
    "sort": {"keys": 1, "stable": True},
    "convolution": {"groups": 1, "batch_groups": 1},
    "gather": {"operand_batching_dims": (), "indices_batching_dims": ()},
    "scatter": {"operand_batching_dims": (), "indices_batching_dims": ()},
    "opaque": {"reason": "", "pointwise": False},
}
PARAPHRASED = ("exp2", "log2", "roll", "scan", "stop_gradient")
"""Operations that StableHLO has no word for."""


def usual(module: Module) -> Module:
    """Return the module with all attributes stated as the reader states them."""
    return replace(module, functions=tuple(map(_function, module.functions)))


def _function(function: Function) -> Function:
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    return replace(block, ops=tuple(map(_op, block.ops)))


def _op(op: Op) -> Op:
    given = {name: attr for name, attr in op.attrs.items()
             if attr != DEFAULTS.get(op.name, {}).get(name, ...)}  # fmt: skip
    attrs = {name: _attr(op, name, attr) for name, attr in sorted(given.items())}
    inner = _block if op.name == "manual_computation" else _inner_block
    return replace(op, attrs=attrs, blocks=tuple(map(inner, op.blocks)))


def _inner_block(block: Block) -> Block:
    """Return the block, where carried parameters have the shardings of the results."""
    params = tuple(replace(param, sharding=None) for param in block.params)
    inner = _block(substitute(block, dict(zip(block.params, params, strict=True))))
    return replace(inner, params=params)


def _attr(op: Op, name: str, attr: Attr) -> Attr:
    if op.name == "dot":
        letters: dict[str, str] = {}
        for letter in filter(str.isalpha, attr):
            letters.setdefault(letter, ascii_letters[len(letters)])
        return "".join(letters.get(letter, letter) for letter in attr)
    if op.name == "constant":
        return _constant(op, attr)
    if isinstance(attr, str) and op.name != "opaque":
        return Symbol(attr)
    return attr


def _constant(op: Op, attr: Any) -> Attr:
    dtype = op.result.type.dtype
    if hasattr(attr, "array"):
        if op.result.type.size != 1:
            return attr
        attr = attr.array.reshape(-1)[0].item()
    if dtype in COMPLEX:
        return complex(attr)
    return float(attr) if dtype in FLOATS else bool(attr) if dtype == "bool" else int(attr)


def round_trips(op: Op) -> bool:
    """Return whether the operation is read back as the same operation."""
    dtypes = {value.type.dtype for value in op.tensors}
    if op.name in PARAPHRASED or "key" in dtypes or op.spec.collective or op.spec.spmd:
        return False
    if len({value.sharding is None for value in op.results}) > 1:
        return False  # a sharding of one result gives the others explicit open shardings
    if op.name in ("sharding_constraint", "reshard"):
        return op.result.sharding is not None
    if op.name in ("abs", "sign"):
        return not dtypes.intersection(UNSIGNED)
    if op.name == "is_finite":
        return not dtypes.intersection(COMPLEX)
    if op.name in ("mul", "prod", "cumprod", "cumsum"):
        return "bool" not in dtypes and not _short(op)
    if op.name in ("cummax", "cummin", "cumlogsumexp"):
        return not _short(op)
    if op.name == "reduce_window":
        return not _is_cumulative_window(op)
    if op.name == "case":
        return op.operands[0].type.dtype == "i32"
    if op.name == "select_and_scatter":
        return {*op.attrs["base_dilation"], *op.attrs["window_dilation"]} == {1}
    return op.name != "dot" or _is_plain(op.attrs["dims"])


def _short(op: Op) -> bool:
    """Return whether a cumulative operation combines at most one element."""
    return "dim" in op.attrs and op.operands[0].type.shape[op.attrs["dim"]] < 2


def _is_cumulative_window(op: Op) -> bool:
    """Return whether the windows are those of a cumulative operation."""
    attrs = op.attrs
    wide = [(size, x, pair) for size, x, pair in
            zip(attrs["window"], op.operands[0].type.shape, attrs["padding"], strict=True)
            if size > 1]  # fmt: skip
    return len(wide) == 1 and wide[0][0] == wide[0][1] and sum(wide[0][2]) == wide[0][0] - 1


def _is_plain(dims: str) -> bool:
    """Return whether a contraction reduces no unshared dimension and has StableHLO's dimension
    order.
    """
    terms, output = dims.split("->")
    x, y = terms.split(",")
    if any(c not in output for c in x + y if (c in x) != (c in y)):
        return False
    batch = [c for c in x if c in y and c in output]
    kept = [c for c in x if c not in y] + [c for c in y if c not in x]
    return [*batch, *kept] == list(output)


def values(block: Block) -> list[Value]:
    """Yield every value of a block and of its nested blocks."""
    inner = [value for op in block.walk() for b in op.blocks for value in b.values()]
    return [*block.values(), *inner]
