"""Calls of public functions and classes with arguments that they do not have.

The error is one of this package, shows the line of the caller, and names the parameters.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any

import pytest

import shardir as sd
from shardir import lax, numpy as snp, optim
from shardir.frontend.errors import ArgumentError
from shardir.scipy.interpolate import RegularGridInterpolator
from tests.error_assertions import error_line, raw
from tests.namespace import words

MODULES = words("""
    numpy numpy.linalg numpy.fft lax lax.linalg nn nn.initializers random scipy.linalg scipy.fft
    scipy.special scipy.stats scipy.signal scipy.ndimage scipy.integrate scipy.cluster.vq
    scipy.sparse.linalg scipy.optimize tree tree_util image dlpack export optim sharding
    ad_checkpoint checkpoints custom_batching custom_derivatives debug distributed dtypes
    flatten_util profiler test_util testing experimental.checkify
    experimental.jet experimental.mesh_utils experimental.multihost_utils experimental.ode
    experimental.pjit experimental.shard_map
""")
CLASSES = (
    sd.NamedSharding,
    sd.PartitionSpec,
    sd.PositionalSharding,
    sd.ShapeDtypeStruct,
    sd.ShapedArray,
    sd.SingleDeviceSharding,
    sd.custom_jvp,
    sd.custom_vjp,
    sd.custom_vmap,
)
"""Classes whose objects programs make, besides `Mesh`, whose metaclass has no signature."""


def find_functions(module: str) -> list[Callable[..., Any]]:
    """Return the public functions of a module of shardir."""
    names = import_module(f"shardir.{module}")
    public = [getattr(names, name) for name in sorted(dir(names)) if name[0] != "_"]
    return [
        each
        for each in public
        if callable(each)
        and not inspect.isclass(each)
        and getattr(each, "__module__", "").startswith("shardir.")
    ]


def find_wrong_errors(functions: Iterable[Callable[..., Any]]) -> list[str]:
    """Return the functions whose calls with invalid arguments have another error."""
    found = []
    for function in functions:
        kinds = {each.kind for each in parameters_of(function)}
        calls: list[dict[str, Any]] = [{}] if has_required_parameter(function) else []
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            calls.append({"no_such_argument": 1})
        for options in calls:
            text = error_line(ArgumentError, partial(call, function, options))
            if " takes (" not in text:
                found.append(f"{function}: {text}")
    return found


def call(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    return function(**options)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def has_required_parameter(function: Callable[..., Any]) -> bool:
    variadic = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    parameters = [each for each in parameters_of(function) if each.kind not in variadic]
    return any(each.default is each.empty for each in parameters)


@pytest.mark.parametrize("module", MODULES)
def test_functions_of_a_module_refuse_arguments_that_they_do_not_have(module: str) -> None:
    functions = find_functions(module)
    assert functions
    assert find_wrong_errors(functions) == []


def test_functions_of_the_package_refuse_arguments_that_they_do_not_have() -> None:
    functions = [getattr(sd, name) for name in raw(sd).__all__]
    called = [each for each in functions if inspect.isfunction(each)]
    assert len(called) > 60
    assert find_wrong_errors(called) == []


def test_classes_refuse_arguments_that_they_do_not_have() -> None:
    assert find_wrong_errors(CLASSES) == []


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            lambda: raw(snp.split)(snp.ones(3)),
            "split takes (ary, indices_or_sections, axis): missing a required argument: "
            "'indices_or_sections'",
        ),
        (
            lambda: raw(snp.hsplit)(snp.ones(3), 1, 0),
            "hsplit takes (ary, indices_or_sections): too many positional arguments",
        ),
        (
            lambda: raw(sd.grad)(abs, argnum=1),
            "grad takes (fun, argnums, has_aux, holomorphic, allow_int): got an unexpected keyword "
            "argument 'argnum'",
        ),
        (
            lambda: raw(sd.enable_x64)(enable=True),
            "enable_x64 takes (enabled): got an unexpected keyword argument 'enable'",
        ),
        (
            lambda: raw(sd.named_scope)(),
            "named_scope takes (name): missing a required argument: 'name'",
        ),
        (
            lambda: raw(sd.tree.leaves)(),
            "leaves takes (tree, is_leaf): missing a required argument: 'tree'",
        ),
        (
            lambda: raw(optim.clip)(),
            "clip takes (max_delta): missing a required argument: 'max_delta'",
        ),
        (
            lambda: raw(lax.conv)(1),
            "conv takes (lhs, rhs, window_strides, padding, precision, preferred_element_type): "
            "missing a required argument: 'rhs'",
        ),
        (
            lambda: raw(sd.NamedSharding)(),
            "NamedSharding takes (mesh, spec, memory_kind): missing a required argument: 'mesh'",
        ),
        (
            lambda: raw(RegularGridInterpolator)(),
            "RegularGridInterpolator takes (points, values, method, bounds_error, fill_value): "
            "missing a required argument: 'points'",
        ),
        (
            lambda: raw(snp.float32)(1, 2),
            "float32 takes (x): too many positional arguments",
        ),
    ],
)  # fmt: skip
def test_the_error_of_a_call_names_the_function_and_its_parameters(
    wrong: Callable[[], Any], text: str
) -> None:
    assert error_line(ArgumentError, wrong) == text


def test_an_error_inside_of_a_function_of_the_user_propagates_unchanged() -> None:
    """The call inside of the function has wrong arguments, and not that of `vmap` or `map`."""

    def needs_two(x: Any, y: Any) -> Any:
        return x + y

    def calls(x: Any) -> Any:
        return raw(needs_two)(x)

    with pytest.raises(TypeError, match=r"needs_two\(\) missing 1 required") as caught:
        sd.vmap(calls)(snp.ones(3))
    assert type(caught.value) is TypeError
    with pytest.raises(TypeError, match=r"needs_two\(\) missing 1 required") as caught:
        sd.tree.map(calls, [1.0])
    assert type(caught.value) is TypeError
