"""Programs of attention and its gradient, and their execution with kernels of fused products."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as jnp
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.fused_products.fused_products_rule import fused_products_rule
from shardir.interpret.interpreter import apply_op
from shardir.ir.module import Module, Value
from shardir.ir.types import NUMPY_DTYPES
from shardir.ops.control_flow.fused_products import fused_products
from shardir.passes.pipeline import Pipeline
from tests.backends.cpu.kernels.random_layouts import Array
from tests.backends.cpu.phase_runner import lower_and_run


def attention_module(arrays: Sequence[Array], gradient: bool, **options: Any) -> Module:
    """Return the program of attention of a query, a key, a value, a mask and a bias (`None` for
    either), or of the gradients of the first three, before fusion."""

    def attention(query: Any, key: Any, value: Any, mask: Any, bias: Any) -> Any:
        return sd.nn.dot_product_attention(query, key, value, bias, mask, **options)

    def loss(*arrays: Any) -> Any:
        return jnp.sum(attention(*arrays) ** 2)

    function = sd.grad(loss, argnums=(0, 1, 2)) if gradient else attention
    with sd.enable_x64(True):
        module = sd.parse(sd.jit(function).lower(*arrays).as_text())
    return Pipeline.parse("cse,dce,fold-views,simplify,cse,dce")(module)


def fuse_products(module: Module, convert_inside: bool = False) -> Module:
    """Return the module after the passes that fuse products."""
    options = "{convert_inside=true}" if convert_inside else ""
    return Pipeline.parse(f"fuse-products{options},dce")(module)


def run_with_kernels(
    module: Module,
    arrays: Sequence[Array],
    workers: int = 2,
    machine: HostDescription | None = None,
) -> list[Array]:
    """Return the results of a program, with kernels for fused products."""
    values: dict[Value, Array] = dict(zip(module.main.body.params, arrays, strict=True))
    for op in module.main.body.ops:
        operands = [values[v] for v in op.operands]
        if op.spec is fused_products:
            outs = [np.zeros(v.type.shape, NUMPY_DTYPES[v.type.dtype]) for v in op.results]
            assert lower_and_run(fused_products_rule, op, operands, outs, workers, machine)
        else:
            made = apply_op(op, operands)
            outs = list(made) if isinstance(made, tuple) else [made]
        values.update(zip(op.results, map(np.asarray, outs), strict=True))
    return [values[v] for v in module.main.body.returns]


def random_attention(
    seed: int, dtype: str, sizes: Mapping[str, int], masked: bool = False, biased: bool = False
) -> list[Any]:
    """Return a random query, key, value, mask and bias; `None` for the latter two if absent."""
    rng = np.random.default_rng(seed)
    batch, rows, columns = sizes["batch"], sizes["rows"], sizes["columns"]

    def draw(length: int, heads: int) -> Array:
        numbers = rng.standard_normal((batch, length, heads, sizes["features"]))
        return numbers.astype(NUMPY_DTYPES[dtype])

    query = draw(rows, sizes["heads"])
    key, value = (draw(columns, sizes["groups"]) for _ in range(2))
    mask = rng.random((batch, 1, rows, columns)) < 0.7 if masked else None
    bias = None
    if biased:
        bias = rng.standard_normal((1, sizes["heads"], rows, columns)).astype(query.dtype)
        bias[rng.random(bias.shape) < 0.2] = -np.inf
    return [query, key, value, mask, bias]
