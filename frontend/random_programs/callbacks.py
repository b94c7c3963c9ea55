"""Samplers of operations with derivative rules, callbacks, fused groups and fused products."""

from collections.abc import Callable, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np

from shardir.frontend.random_programs.scope import DTYPES, Scope, sampler
from shardir.ir.host_function import HostFunction
from shardir.ir.module import Block
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.ops.control_flow.custom_partitioning import DeviceProgram


@sampler("checkpoint")
def _(s: Scope, name: str) -> None:
    _append_region(s, name)


@sampler("custom-jvp", "custom-vjp")
def _(s: Scope, name: str) -> None:
    _append_region(s, name, ("f", "layer.rule"))


def _append_region(s: Scope, name: str, rules: Sequence[str] = ()) -> None:
    operands = [s.tensor() for _ in range(s.integer(0, 2))]

    def body(inner: Scope, values: list[Any]) -> list[Any]:
        inner.some()
        return [inner.tensor() for _ in range(inner.integer(0, 2))]

    block = s.block([x.type for x in operands], body)
    attrs = {"rule": s.choose(*rules)} if rules else {}
    s.emit(name, *operands, blocks=(block,), **attrs)


@sampler("checkpoint-name")
def _(s: Scope, name: str) -> None:
    s.emit(name, s.tensor(), label=s.choose("a", "scores"))


@sampler("callback", "pure-callback")
def _(s: Scope, name: str) -> None:
    """Append a callback that counts the elements of its operands."""
    operands = [s.tensor() for _ in range(s.integer(0, 2))]
    types = tuple(s.type(DTYPES, high=2) for _ in range(s.integer(0, 2)))
    result = types[0] if len(types) == 1 else types
    s.emit(name, *operands, function=HostFunction("count", _element_counter(types)), result=result)


def _element_counter(types: tuple[TensorType, ...]) -> Callable[..., tuple[Any, ...]]:
    """Return a function that fills arrays of these types with the number of elements of its
    arguments."""

    def count(*arrays: Any) -> tuple[Any, ...]:
        total = sum(array.size for array in arrays)
        return tuple(np.full(type.shape, total).astype(type.numpy) for type in types)

    return count


@sampler("custom-partitioning")
def _(s: Scope, name: str) -> None:
    """Append the identity with a rule by which all dimensions correspond, or without a rule."""
    x = s.tensor()
    dims = " ".join(ascii_lowercase[: len(x.type.shape)])

    def identity() -> Block:
        return s.block([x.type], lambda inner, values: values)

    def partition(operands: list[Sharding], results: list[Sharding]) -> DeviceProgram:
        return DeviceProgram(identity(), tuple(operands), tuple(results))

    s.emit(
        name, x, function=HostFunction("identity", identity),
        partition=HostFunction("shard", partition),
        factor_rule=s.choose("", f"{dims} -> {dims}"), result=x.type,
    )  # fmt: skip


@sampler("inspect-sharding")
def _(s: Scope, name: str) -> None:
    s.emit(name, s.tensor(), function=HostFunction("tell", lambda *_: None))


@sampler("fused")
def _(s: Scope, name: str) -> None:
    """Append a chain of elementwise operations on one shape."""
    x = s.tensor(("f32", "f64"))

    def body(inner: Scope, values: list[Any]) -> list[Any]:
        (value,) = values
        for _ in range(inner.integer(1, 3)):
            value = inner.emit(inner.choose("neg", "abs", "tanh", "sin"), value)
        return [value]

    s.emit(name, x, blocks=(s.block([x.type], body),))


@sampler("fused_products")
def _(s: Scope, name: str) -> None:
    """Append two products with an elementwise operation between them."""
    rows, columns, features = (s.integer(2, 4) for _ in range(3))
    dtype = s.choose("f32", "f64")
    x = s.value(TensorType((rows, features), dtype))
    y = s.value(TensorType((columns, features), dtype))

    def body(inner: Scope, values: list[Any]) -> list[Any]:
        scores = inner.emit("dot", values[0], values[1], dims="th,sh->ts")
        scores = inner.emit(inner.choose("neg", "abs", "tanh", "sin"), scores)
        return [inner.emit("dot", scores, values[1], dims="ts,sh->th")]

    s.emit(name, x, y, blocks=(s.block([x.type, y.type], body),))
