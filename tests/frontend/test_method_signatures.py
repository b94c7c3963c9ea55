"""Calls of methods of public classes with arguments that they do not have.

The error is an `ArgumentError` that names the method and its parameters, as that of a function.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import PartitionSpec as P, export, lax, numpy as snp, optim
from shardir.experimental import custom_partitioning
from shardir.experimental.checkify import checkify
from shardir.experimental.multihost_utils import live_devices
from shardir.frontend.call_signatures import (
    check_call_signature,
    with_method_errors,
    with_signature_errors,
)
from shardir.frontend.errors import ArgumentError
from shardir.frontend.transforms.custom_rules import SymbolicZero
from shardir.image import ResizeMethod
from shardir.profiler import StepTraceAnnotation, TraceAnnotation
from shardir.scipy.interpolate import RegularGridInterpolator
from shardir.scipy.optimize import OptimizeResults
from shardir.scipy.spatial.transform import Rotation, Slerp
from shardir.scipy.stats import gaussian_kde
from tests.error_assertions import assert_raises_exactly, error_line, raw


def identity(x: Any) -> Any:
    return x


def make_objects() -> list[Any]:
    """Return an object of each public class whose methods programs call."""
    mesh = sd.make_mesh((2, 4), ("x", "y"))
    array = snp.ones((8, 4))
    compiled = sd.jit(identity)
    lowered = compiled.lower(array)
    points = np.arange(3.0)
    rotation = Rotation.from_quat(snp.array([0.0, 0.0, 0.0, 1.0]))
    return [
        sd.config, mesh, mesh.abstract_mesh, sd.NamedSharding(mesh, P("x")), P("x"),
        sd.SingleDeviceSharding(sd.devices()[0]), sd.PositionalSharding(sd.devices()),
        sd.devices()[0], array, array.at[0], sd.ShapeDtypeStruct((2,), "float32"),
        sd.typeof(array), compiled, compiled.trace(array), lowered, lowered.compile(),
        export.export(compiled)(array), sd.tree.structure([1]), snp.add,
        sd.custom_jvp(identity), sd.custom_vjp(identity), sd.custom_vmap(identity),
        custom_partitioning.custom_partitioning(identity), checkify(identity)(array)[0],
        RegularGridInterpolator((points,), points), gaussian_kde(snp.arange(9.0)), rotation,
        optim.sgd(0.1), TraceAnnotation("name"),
    ]  # fmt: skip


STATIC_CLASSES = (Rotation, Slerp, sd.checkpoint_policies, ResizeMethod, lax.GatherScatterMode)
"""Classes with class methods and static methods that programs call."""

CONSTRUCTORS = (
    lax.ConvDimensionNumbers, lax.DotAlgorithm, lax.GatherDimensionNumbers,
    lax.RaggedDotDimensionNumbers, lax.ScatterDimensionNumbers, lax.Tolerance, optim.Transformation,
    sd.tree_util.DictKey, sd.tree_util.SequenceKey, sd.tree_util.GetAttrKey,
    sd.tree_util.FlattenedIndexKey, sd.sharding.ManualAxisType, SymbolicZero, OptimizeResults,
    sd.custom_derivatives.CustomVJPPrimal, custom_partitioning.SdyShardingRule,
    custom_partitioning.ArrayMapping, custom_partitioning.CompoundFactor, live_devices, Rotation,
    TraceAnnotation, StepTraceAnnotation,
)  # fmt: skip
"""Named tuples and other classes that programs make."""

SHARDING_METHODS = """
    check_divides describe_dimension divides_evenly partial_sum_numbers resolved_sub_axes
    shard_positions stored_indices_map stored_shape sub_axes unreduced_sub_axes
"""
"""The methods of shardings that only this package calls."""

PYTHON_ERRORS = {
    "Array": """
        block_until_ready byteswap checked_storage copy_to_host_async delete devices is_deleted
        is_ready item read read_total release to_numpy_view tolist transpose
    """,
    "NamedSharding": f"{SHARDING_METHODS} check_explicit_divides replicated_sub_axes",
    "SingleDeviceSharding": SHARDING_METHODS,
    "PositionalSharding": f"{SHARDING_METHODS} from_sub_axes",
    "PartitionSpec": "axes count index mentioned_axes with_entries",
    "Lowered": """
        check_arguments emission make_program planning_record simulate_with_remedies
    """,
    "Rotation": "count index",
    "TraceAnnotation": "__call__",
    "Transformation": "count index",
    "PublicFunction": "share_call_cache",
}
"""The methods whose errors are those of Python: methods of arrays without named parameters, methods
that only this package calls, and those of tuples and of the standard library."""


def find_methods(owner: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public methods of an object; of a class, its class methods and static methods."""
    cls = owner if inspect.isclass(owner) else type(owner)
    for name in sorted({name for base in cls.__mro__ for name in vars(base)}):
        member = inspect.getattr_static(cls, name)
        is_static = isinstance(member, (classmethod, staticmethod))
        is_method = is_static or (inspect.isroutine(member) and not inspect.isclass(owner))
        if is_method and (not name.startswith("_") or name == "__call__"):
            method = getattr(owner, name)
            if callable(method):  # Descriptors of slots are routines for `inspect`.
                yield name, method


def call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return function(*args, **options)


def make_wrong_calls(method: Callable[..., Any]) -> list[Callable[[], Any]]:
    """Return calls with missing, unknown and too many arguments, where the method has none."""
    parameters = inspect.signature(method).parameters.values()
    kinds = {each.kind for each in parameters}
    variadic = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    calls: list[Callable[[], Any]] = []
    if any(each.default is each.empty and each.kind not in variadic for each in parameters):
        calls.append(partial(call, method))
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        calls.append(partial(call, method, no_such_argument=1))
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        calls.append(partial(call, method, *[object()] * 20))
    return calls


def find_wrong_errors(method: Callable[..., Any], owner: str = "") -> list[str]:
    """Return the errors of invalid calls that do not state the name and the parameters."""
    name = getattr(method, "__name__", "")
    shown = "" if name == "__call__" else f"{owner}.{name}" if owner else name
    texts = []
    for wrong_call in make_wrong_calls(method):
        with pytest.raises(TypeError) as caught:
            wrong_call()
        texts.append(str(caught.value).splitlines()[0])
        if isinstance(caught.value, ArgumentError):
            assert Path(__file__).name in str(caught.value)
    return [text for text in texts if f"{shown} takes (" not in text]


def test_methods_refuse_arguments_that_they_do_not_have() -> None:
    found = {
        (cls, name)
        for owner in make_objects()
        for name, method in find_methods(owner)
        if find_wrong_errors(method, cls := type(owner).__name__)
    }
    assert found == {(cls, name) for cls, names in PYTHON_ERRORS.items() for name in names.split()}


@pytest.mark.parametrize("cls", STATIC_CLASSES, ids=lambda cls: cls.__name__)
def test_static_methods_refuse_arguments_that_they_do_not_have(cls: Any) -> None:
    methods = dict(find_methods(cls))
    assert methods
    assert {name: find_wrong_errors(method) for name, method in methods.items()} == {
        name: [] for name in methods
    }


@pytest.mark.parametrize("cls", CONSTRUCTORS, ids=lambda cls: cls.__name__)
def test_constructors_refuse_arguments_that_they_do_not_have(cls: Any) -> None:
    text = error_line(ArgumentError, lambda: cls(no_such_argument=1))
    assert text.startswith(f"{cls.__name__} takes (")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            lambda: raw(sd.config).update("enable_x64"),
            "Config.update takes (name, value): missing a required argument: 'value'",
        ),
        (
            lambda: raw(sd.config)(True),
            "Config takes (settings): too many positional arguments",
        ),
        (
            lambda: raw(sd.make_mesh((2,), ("x",))).update(axes=("y",)),
            "Mesh.update takes (axis_sizes, axis_names, axis_types): got an unexpected keyword "
            "argument 'axes'",
        ),
        (
            lambda: raw(sd.NamedSharding(sd.make_mesh((2,), ("x",)), P())).shard_shape(),
            "NamedSharding.shard_shape takes (global_shape): missing a required argument: "
            "'global_shape'",
        ),
        (
            lambda: raw(snp.ones(2)).astype(),
            "Array.astype takes (dtype, copy, device): missing a required argument: 'dtype'",
        ),
        (
            lambda: raw(snp.ones(2)).reshape(2, copy=True),
            "Array.reshape takes (shape, order, out_sharding): got an unexpected keyword argument "
            "'copy'",
        ),
        (
            lambda: raw(snp.ones(2)).at[0].set(),
            "IndexedUpdate.set takes (values, options): missing a required argument: 'values'",
        ),
        (
            lambda: raw(sd.make_mesh((2,), ("x",)).abstract_mesh).update(1, 2, 3, 4),
            "AbstractMesh.update takes (axis_sizes, axis_names, axis_types): too many positional "
            "arguments",
        ),
    ],
)  # fmt: skip
def test_the_error_of_a_method_names_its_class(wrong: Callable[[], Any], text: str) -> None:
    assert error_line(ArgumentError, wrong) == text


def test_only_public_methods_with_parameters_of_their_own_are_wrapped() -> None:
    """Calls of functions of the user do not take longer."""

    def forward(self: Any, *args: Any, **options: Any) -> Any:
        return args, options

    @with_signature_errors
    def checked(self: Any, x: Any) -> Any:
        return x

    @with_method_errors
    class Example:
        limit = 3
        public_forward = forward
        __call__ = forward
        public_checked = checked

        def own(self, x: Any) -> Any:
            return x

        def _private(self, x: Any) -> Any:
            return x

    assert Example.limit == 3
    assert Example.__call__ is Example.public_forward is forward
    assert Example.public_checked is checked
    assert not hasattr(Example._private, "__wrapped__")
    assert_raises_exactly(
        lambda: raw(Example()).own(),
        ArgumentError,
        "Example.own takes (x): missing a required argument: 'x'",
    )


def test_an_object_that_is_called_has_the_name_of_its_class() -> None:
    @with_method_errors
    class Example:
        def __call__(self, x: Any) -> Any:
            return x

    assert_raises_exactly(
        lambda: raw(Example())(),
        ArgumentError,
        "Example takes (x): missing a required argument: 'x'",
    )


def test_an_error_inside_of_a_method_propagates_unchanged() -> None:
    def needs_two(x: Any, y: Any) -> Any:
        return x + y

    @with_method_errors
    class Example:
        def method(self, x: Any) -> Any:
            return raw(needs_two)(x)

    with pytest.raises(TypeError, match=r"needs_two\(\) missing 1 required") as caught:
        Example().method(1)
    assert type(caught.value) is TypeError


def test_the_parameters_of_a_bound_method_do_not_contain_its_object() -> None:
    class Example:
        @contextmanager
        def method(self, x: Any) -> Iterator[Any]:
            yield x

    check_call_signature(Example().method, "method", (1,))
    text = error_line(ArgumentError, lambda: check_call_signature(Example().method, "method", ()))
    assert text == "method takes (x): missing a required argument: 'x'"
    assert sd.jit(Rotation.from_quat)(snp.ones(4)).as_quat().shape == (4,)
