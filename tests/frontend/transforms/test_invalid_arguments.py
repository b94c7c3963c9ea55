"""Errors of transformations and array functions for arguments of unsupported types."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir
from shardir.errors import RuleError, ShardirError
from shardir.frontend.errors import (
    ArgumentError,
    DeviceError,
    MeshError,
    NotAnArrayError,
    ShapeError,
    StructureError,
)
from tests.error_assertions import assert_raises_exactly

sd: Any = shardir
snp: Any = shardir.numpy
X = np.ones(3, np.float32)
NO_TYPE = (
    "is not an element type; the element types are bool, int2, int4, int8, int16, int32, int64, "
    "uint2, uint4, uint8, uint16, uint32, uint64, float4_e2m1fn, float8_e3m4, float8_e4m3, "
    "float8_e4m3fn, float8_e4m3b11fnuz, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, "
    "float8_e8m0fnu, float16, bfloat16, float32, float64, complex64, complex128"
)
CASES: list[tuple[Callable[[], Any], type[ShardirError], str]] = [
    (
        lambda: sd.jit(len, static_argnums=len),
        ArgumentError,
        "static_argnums of len has <built-in function len>, which is not a number",
    ),
    (
        lambda: sd.jit(len, static_argnums=np.array(0)),
        ArgumentError,
        "static_argnums of len has array(0), which is not a number",
    ),
    (
        lambda: sd.grad(len, 3.7)(X),
        ArgumentError,
        "grad of len is taken with respect to argument 3.7, and it was called with 1 "
        "positional argument; change argnums, or pass the argument by position",
    ),
    (
        lambda: sd.value_and_grad(len, has_aux=X),
        ArgumentError,
        "has_aux of grad is True or False, got float32[3]",
    ),
    (
        lambda: sd.jacrev(len, holomorphic=X),
        ArgumentError,
        "holomorphic of jacrev is True or False, got float32[3]",
    ),
    (
        lambda: sd.checkpoint(len, concrete=X),
        ArgumentError,
        "concrete of checkpoint is True or False, got float32[3]",
    ),
    (
        lambda: sd.checkpoint(len, prevent_cse=X),
        ArgumentError,
        "prevent_cse of checkpoint is True or False, got float32[3]",
    ),
    (
        lambda: sd.custom_jvp(len, nondiff_argnames=3),
        ArgumentError,
        "nondiff_argnames of len has 3, but its parameters are obj",
    ),
    (
        lambda: sd.custom_vjp(len, nondiff_argnames=X),
        ArgumentError,
        "nondiff_argnames of len has float32[3], but its parameters are obj",
    ),
    (
        lambda: sd.custom_gradient([]),
        StructureError,
        "custom_gradient takes a function, got []",
    ),
    (
        lambda: sd.make_ir(None),
        StructureError,
        "make_ir takes a function, got None",
    ),
    (
        lambda: sd.vmap(len, axis_size="a"),
        ArgumentError,
        "axis_size of vmap of len must be an integer, got 'a'",
    ),
    (
        lambda: sd.pmap(len, axis_size="a"),
        ArgumentError,
        "axis_size of pmap of len must be an integer, got 'a'",
    ),
    (
        lambda: sd.pmap(len, backend=X),
        ArgumentError,
        "backend of pmap of len is float32[3], which is not a string",
    ),
    (
        lambda: sd.pure_callback(len, X, vmap_method=X),
        ArgumentError,
        "vmap_method of pure_callback is array([1., 1., 1.], dtype=float32); it is "
        "'sequential', 'sequential_unrolled', 'expand_dims', 'broadcast_all', 'legacy_vectorized' "
        "or None",
    ),
    (
        lambda: sd.vjp(lambda x: x, X, has_aux=X),
        ArgumentError,
        "has_aux of vjp is True or False, got float32[3]",
    ),
    (
        lambda: sd.devices(3),
        DeviceError,
        "a platform is a string, got 3",
    ),
    (
        lambda: sd.local_devices("a"),
        DeviceError,
        "the index of a process is an integer, got 'a'",
    ),
    (
        lambda: sd.segment_sum(X, np.arange(3), X),
        ArgumentError,
        "num_segments must be an integer, got float32[3]",
    ),
    (
        lambda: sd.segment_sum(X, np.arange(3), mode=X),
        ArgumentError,
        "mode float32[3] is unknown; the modes are drop, fill, clip, promise_in_bounds",
    ),
    (
        lambda: sd.make_array_from_callback(2.5, None, len),
        ShapeError,
        "shape (2.5,) has the size 2.5, which is not an integer",
    ),
    (
        lambda: sd.make_array_from_single_device_arrays((3,), "x", []),
        ArgumentError,
        "the sharding of make_array_from_single_device_arrays is 'x'; write "
        "NamedSharding(mesh, PartitionSpec(...))",
    ),
    (
        lambda: sd.ShapeDtypeStruct((3,), np.arange(3)),
        NotAnArrayError,
        f"int64[3] {NO_TYPE}",
    ),
    (
        lambda: sd.ShapeDtypeStruct((3,), [1]),
        NotAnArrayError,
        f"[1] {NO_TYPE}",
    ),
    (
        lambda: sd.sharding_rule(3.7),
        RuleError,
        "a rule is a text such as 'i j -> j i', got 3.7",
    ),
    (
        lambda: sd.sharding_rule("i j -> j i", reduction=3),
        RuleError,
        "reduction of a rule has names of factors, got 3",
    ),
    (
        lambda: sd.register_rule([1], "i j -> j i"),
        RuleError,
        "a rule is stated for the name of an operation, got [1]",
    ),
    (
        lambda: sd.register_rule("transpose", X),
        RuleError,
        "the rule of 'transpose' is a text such as 'i j -> j i', got array([1., 1., 1.], "
        "dtype=float32)",
    ),
    (
        lambda: sd.rules(3).__enter__(),
        RuleError,
        "rules takes a dictionary from names to rules, got 3",
    ),
    (
        lambda: snp.zeros(3, [[1]]),
        NotAnArrayError,
        f"[[1]] {NO_TYPE}",
    ),
    (
        lambda: sd.local_devices(X),
        DeviceError,
        "the index of a process is an integer, got array([1., 1., 1.], dtype=float32)",
    ),
    (
        lambda: sd.segment_sum(X, X),
        ArgumentError,
        "segment_ids are integers, got f32[3]",
    ),
    (
        lambda: sd.segment_max(1j * X, np.arange(3)),
        ArgumentError,
        "segment_max compares real numbers, got c64",
    ),
    (
        lambda: sd.make_mesh((1,), ("x",), axis_types=True),
        MeshError,
        "the axis 'x' of a Mesh has the type True; it must be AxisType.Auto or AxisType.Explicit",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), CASES, ids=[text[:40] for *_, text in CASES])
def test_an_invalid_argument_has_an_exact_error(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert_raises_exactly(wrong, kind, text)


def test_cyclic_lists_of_devices_are_errors() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(StructureError, match="contains itself; a pytree must be finite"):
        sd.Mesh(endless, "x")
