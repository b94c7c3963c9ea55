"""Adaptation of JAX's test utilities to another library under test.

The utilities are part of the `jax` package. They create meshes, compile and differentiate with JAX;
this module redirects these functions to the library under test. A setting that both libraries have
is changed in both.
"""

import re
import unittest
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

NAMED = {"dot": "dot_general"}
"""What JAX calls operations that tests count in the text of a program."""

SHARED = ("enable_x64", "threefry_partitionable", "random_seed_offset")
"""Settings that the machinery and the library both read."""


class Mirror:
    """A setting of JAX's test utilities; the library under test follows it."""

    def __init__(self, name: str, state: Any, library: Any) -> None:
        self._name, self._state, self._library = name, state, library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    @contextmanager
    def __call__(self, value: bool = True) -> Iterator[None]:
        with self._state(value), self._library.config(**{self._name: value}):
            yield


class Settings:
    """The `jax.config` that test files see: the settings of the utilities and of the library."""

    def __init__(self, machinery: Any, library: Any) -> None:
        self._machinery, self._library = machinery, library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machinery, name)

    def update(self, name: str, value: Any) -> None:
        self._machinery.update(name, value)
        if name.removeprefix("jax_") in SHARED:
            self._library.config.update(name, value)


def redirect_to(library: Any, *, wording: bool = False, compiled: bool = True) -> Mapping[str, Any]:
    """Redirect the test utilities to `library`, and return replacements of some names of `jax`.

    Unless `wording` is true, the text of an error need not agree with JAX; its type must. Unless
    `compiled` is true, NumPy executes the programs.
    """
    if not compiled:
        for name in ("dispatch.programs.compilation", "arrays.array_import"):
            module: Any = import_module(f"{library.__name__}.frontend.{name}")
            module.is_available = lambda: False
    machinery: Any = import_module("jax._src.test_util")
    public: Any = import_module("jax._src.public_test_util")
    config = import_module("jax._src.config")
    stubs: dict[str, Any] = {"jax.config": Settings(config.config, library)}
    for name in SHARED:
        mirror = Mirror(name, getattr(config, name), library)
        setattr(config, name, mirror)
        config.config_states[f"jax_{name}"] = mirror
        stubs[f"jax.{name}"] = mirror
    for module in (machinery, public):
        module.api = SimpleNamespace(
            jit=library.jit, jvp=library.jvp, vjp=library.vjp, linearize=library.linearize
        )
        module.tree_map = library.tree.map
    public.tree_reduce = library.tree.reduce
    ours = partial(library.jit)
    ours._name = "jit"  # type: ignore[attr-defined]
    machinery.JIT_IMPLEMENTATION = (ours, machinery.JIT_IMPLEMENTATION[1])
    for name in ("promote_dtypes", "promote_dtypes_inexact"):
        setattr(machinery, name, _on_numpy(getattr(machinery, name)))
    if not wording:
        machinery.check_raises = _raises
        case = machinery.JaxTestCase
        case.assertRaisesRegex = _assert_raises_any_text(case.assertRaises)
        case.assertWarnsRegex = _assert_raises_any_text(case.assertWarns)
    machinery.create_mesh = _mesh_maker(library)
    machinery.with_explicit_mesh = _explicit_mesh_decorator(library)
    machinery.with_mesh = _mesh_block(library)
    _call_privately(library)
    stubs["jax.test_util"] = public
    stubs["jax._src.dtypes"] = _Overlay(
        import_module("jax._src.dtypes"),
        {name: getattr(library.dtypes, name) for name in ("prng_key", "extended")},
    )
    stubs["jax._src.random.prng.PRNGKeyArray"] = _class_of_keys(library)
    stubs["jax._src.lax.lax._convert_element_type"] = _weak_type_converter(library)
    spelled = stubs["jax.make_jaxpr"] = stubs["jax._src.api.make_jaxpr"] = _print_simplified(
        library
    )
    stubs["jax.linearize"] = stubs["jax._src.api.linearize"] = _readable(library, spelled)
    return stubs


def _call_privately(library: Any) -> None:
    """Give public objects the internal names that JAX has for them."""
    library.Array.aval = property(library.typeof)
    import_module("shardir.frontend.tracing.tracer").Tracer.aval = property(library.typeof)
    library.Array._committed = property(lambda array: array.committed)
    library.Array._value = property(np.asarray)
    library.Array._base_array = property(
        lambda array: array if array.is_deleted() else library.random.key_data(array)
    )
    library.Array._check_if_deleted = lambda array: array.checked_storage()
    library.Array._fully_replicated_shard = lambda array: array.addressable_data(0)
    sharding = library.sharding.Sharding
    sharding._device_assignment = property(lambda known: known.device_assignment)


class _Overlay:
    """A module with some of its names replaced."""

    def __init__(self, module: Any, names: Mapping[str, Any]) -> None:
        self.__dict__.update(names, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _class_of_keys(library: Any) -> type:
    """Return a class whose instances are the arrays and traced values with random keys."""

    class Keys(type):
        def __instancecheck__(cls, x: object) -> bool:
            is_array = isinstance(x, library.Array)
            return is_array and bool(library.numpy.issubdtype(x.dtype, library.dtypes.prng_key))  # type: ignore[attr-defined]

    return Keys("PRNGKeyArray", (), {})


def _weak_type_converter(library: Any) -> Callable[..., Any]:
    """Return the conversion to an element type that also states whether the type is weak."""
    arrays = import_module(f"{library.__name__}.frontend.arrays.array")

    def convert(x: Any, dtype: Any = None, weak_type: bool = False) -> Any:
        numbers = library.numpy.asarray(x, dtype)
        return arrays.from_numpy(np.asarray(numbers), weak=weak_type)

    return convert


def _mesh_maker(library: Any) -> Any:
    def create_mesh(
        shape: tuple[int, ...], names: Any, iota_order: bool = False, axis_types: Any = None
    ) -> Any:
        count = int(np.prod(shape))
        if len(library.devices()) < count:
            raise unittest.SkipTest(f"needs {count} devices")
        devices = np.array(library.devices()[:count]).reshape(shape)
        keywords = {"axis_types": axis_types} if axis_types else {}
        return library.sharding.Mesh(devices, names, **keywords)

    return create_mesh


def _mesh_block(library: Any) -> Any:
    """Return the context manager and decorator that enters the mesh of the given axes."""

    @contextmanager
    def with_mesh(named_shape: Any) -> Iterator[None]:
        names, sizes = zip(*named_shape, strict=True)
        with _mesh_maker(library)(sizes, names):
            yield

    return with_mesh


def _explicit_mesh_decorator(library: Any) -> Any:
    """Return the decorator of tests that take a mesh, whose axes are Explicit, and enter it."""

    def with_explicit_mesh(
        sizes: Any, names: Any, axis_types: Any = None, iota_order: bool = False
    ) -> Any:
        kinds = axis_types or (library.sharding.AxisType.Explicit,) * len(names)

        def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any, **options: Any) -> Any:
                mesh = _mesh_maker(library)(sizes, names, axis_types=kinds)
                with library.sharding.use_mesh(mesh):
                    return test(*args, **options, mesh=mesh)

            return wraps(test)(run)

        return decorate

    return with_explicit_mesh


def _print_simplified(library: Any) -> Any:
    """Replace `make_jaxpr` by `make_ir`, with simplified programs.

    The text has a space after the name of an operation, and JAX's name of a contraction.
    """
    tidy = import_module(f"{library.__name__}.passes.pipeline").Pipeline.parse("dce")

    def make_jaxpr(*args: Any, **options: Any) -> Any:
        program = library.make_ir(*args, **options)
        return lambda *args: re.sub(
            r"= (\w+)\(",
            lambda found: f"= {NAMED.get(found[1], found[1])} (",
            str(tidy(program(*args))),
        )

    return make_jaxpr


def _readable(library: Any, spelled: Any) -> Any:
    """Wrap `linearize` so that its tangent function shows its program where JAX shows a jaxpr."""

    def linearize(fun: Any, *primals: Any, **options: Any) -> Any:
        results, onward, *rest = library.linearize(fun, *primals, **options)
        text = Shown(lambda: str(spelled(onward)(*library.tree.map(np.zeros_like, primals))))
        readable = Readable(onward.func, text)
        return (results, library.tree_util.Partial(readable, *onward.args), *rest)

    return linearize


class Readable:
    """A function whose first argument is shown as the text of its program."""

    def __init__(self, fun: Callable[..., Any], *args: Any) -> None:
        self._fun, self.args = fun, args

    def __call__(self, *args: Any) -> Any:
        return self._fun(*args)


class Shown:
    """A text that is computed on demand."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make

    def __str__(self) -> str:
        return self._make()


def _on_numpy(promote: Any) -> Any:
    """Wrap `promote` of JAX for arrays of another library; Python numbers remain weakly typed."""

    def promoted(*arrays: Any) -> Any:
        numbers = (bool, int, float, complex)
        return promote(*(x if type(x) in numbers else np.asarray(x) for x in arrays))

    return promoted


def _raises(call: Any, expected: Any, wording: str) -> None:
    try:
        call()
    except expected:
        return
    raise AssertionError(f"{expected.__name__} not raised")


def _assert_raises_any_text(check: Any) -> Any:
    """Return an `assertRaises` with the parameters of `assertRaisesRegex`."""

    def raises(case: Any, expected: Any, pattern: Any, *call: Any, **named: Any) -> Any:
        return check(case, expected, *call, **named)

    return raises
