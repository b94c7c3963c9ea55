"""The module `jax` that a test file sees: the library under test behind facades.

`jax.a.b` is the library's `a.b`. `jax._src.a.b` is a part of JAX's test utilities, the public name
that the internal one implements, or an absent name. Absent names raise only when a test uses them,
so that one absent name does not prevent the import of a file.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ContextDecorator, contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

MACHINERY = frozenset(
    [
        "cloud_tpu_init",
        "compiler",
        "config",
        "deprecations",
        "distributed",
        "dtypes",
        "hardware_utils",
        "hashable_array",
        "lax_reference",
        "lib",
        "public_test_util",
        "source_info_util",
        "test_util",
        "traceback_util",
        "typing",
        "util",
    ]
)
"""Modules of `jax._src` that test files use as tools: JAX lends them."""

CONTAINERS = frozenset(
    [
        "ad_checkpoint",
        "ad_util",
        "api",
        "api_util",
        "array",
        "core",
        "custom_derivatives",
        "debugging",
        "dispatch",
        "errors",
        "internal_test_util",
        "interpreters",
        "lax",
        "lax.control_flow",
        "lax.convolution",
        "lax.lax",
        "lax.parallel",
        "lax.slicing",
        "lax.windowed_reductions",
        "linear_util",
        "mesh",
        "mesh_utils",
        "named_sharding",
        "nn",
        "numpy",
        "op_shardings",
        "partition_spec",
        "pjit",
        "pmap",
        "prng",
        "random",
        "random.prng",
        "random.threefry2x32",
        "scipy",
        "shard_map",
        "sharding",
        "sharding_impls",
        "stages",
        "state",
        "tree_util",
        "xla_bridge",
    ]
)
"""Modules of `jax._src` that are no tools, but whose names may have public counterparts."""

PUBLIC = (
    (r"sharding_impls\.make_single_device_sharding", "sharding.SingleDeviceSharding"),
    (r"sharding_impls\.(make_mesh|set_mesh)", r"\1"),
    (
        r"(?:sharding_impls|named_sharding|mesh|partition_spec|sharding)\.(\w+)",
        r"sharding.\1",
    ),
    (r"mesh_utils\.(\w+)", r"experimental.mesh_utils.\1"),
    (r"array\.ArrayImpl", "Array"),
    (r"pjit\.pjit", "jit"),
    (r"pjit\.with_sharding_constraint", "lax.with_sharding_constraint"),
    (r"shard_map\.shard_map", "shard_map"),
    (r"(?:api|array)\.(\w+)", r"\1"),
    (
        r"lax\.(?:parallel|lax|control_flow|slicing|convolution|windowed_reductions)\.(\w+)",
        r"lax.\1",
    ),
    (r"lax\.(\w+)", r"lax.\1"),
    (r"debugging\.debug_print", "debug.print"),
    (r"debugging\.(\w+)", r"debug.\1"),
    (
        r"(ad_checkpoint|api_util|core|custom_derivatives|errors|nn|numpy|random|scipy|stages|"
        r"tree_util)\.(\w+)",
        r"\1.\2",
    ),
)
"""The public name that an internal one (a pattern, without `jax._src.`) implements."""

INERT = frozenset(
    [
        "jax.debug_infs",
        "jax.debug_key_reuse",
        "jax.debug_nans",
        "jax.enable_checks",
        "jax.log_compiles",
        "jax.numpy_dtype_promotion",
        "jax.numpy_rank_promotion",
        "jax.transfer_guard",
    ]
)
"""Settings that guard or instrument JAX; a library without one does nothing in their blocks."""


COUNTERPARTS = {
    "ConcretizationTypeError": "frontend.errors.TracedValueError",
    "JaxRuntimeError": "errors.ShardirError",
    "NonConcreteBooleanIndexError": "frontend.errors.TracedMaskError",
    "ShardingTypeError": "frontend.errors.ShardingTypeError",
    "ShapedArray": "frontend.tracing.typeof.ShapedArray",
    "Tracer": "frontend.tracing.tracer.Tracer",
    "TracerArrayConversionError": "frontend.errors.TracedValueError",
    "TracerBoolConversionError": "frontend.errors.TracedValueError",
    "TracerIntegerConversionError": "frontend.errors.TracedValueError",
    "UnexpectedTracerError": "frontend.errors.LeakedTracerError",
    "float0": "frontend.dtypes.float0",
}
"""What the library calls a thing that JAX has in `jax.errors`, `jax.core` and elsewhere."""


class Inert(ContextDecorator):
    """A context manager or decorator without effect."""

    def __init__(self, *args: object, **keywords: object) -> None:
        """Take what any setting takes."""

    def __enter__(self) -> None:
        """Change nothing."""

    def __exit__(self, *raised: object) -> None:
        """Change nothing back."""


UNUSABLE = re.compile(
    r"jax\.interpreters\..*|jax\.extend\..*|jax\.experimental\.pallas.*|jax\.lax\.\w+_p"
)
"""Names that are public in spelling only."""


class AbsentName(NotImplementedError):
    """A test uses a name that the library under test does not have."""


class Absent:
    """An absent name: silent while a file is loaded, an `AbsentName` in a test."""

    loading = False

    def __init__(self, name: str) -> None:
        self.__dict__["_absent"] = name

    def _refuse(self, *args: object, **keywords: object) -> Any:
        if Absent.loading:
            return self
        if self._absent.endswith(".cache_clear"):
            return None
        raise AbsentName(f"the library has no {self._absent}")

    __bool__ = __enter__ = __exit__ = __ge__ = __getitem__ = __lt__ = __setitem__ = _refuse

    def __call__(self, *args: object, **keywords: object) -> Any:
        """Return another absent name while a file is loaded, each with a distinct name."""
        if Absent.loading:
            return Absent(f"{self._absent}{(*args, *keywords.values())}")
        return self._refuse()

    def __repr__(self) -> str:
        return str(self._absent)

    @property
    def dtype(self) -> Any:
        """Return a dtype, because test files ask for dtypes of absent names while they are
        loaded.
        """
        return np.dtype(np.int8) if Absent.loading else self._refuse()

    def __iter__(self) -> Iterator[Any]:
        if not Absent.loading:
            self._refuse()
        return iter(())

    def __getattr__(self, name: str) -> Any:
        if name == "__name__":
            return self._absent.rpartition(".")[2]
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._absent}.{name}"
        return MADE[full] if full in MADE else Absent(full)

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        return (object,)


@contextmanager
def loading() -> Iterator[None]:
    """Suppress errors of absent names inside of the block."""
    Absent.loading = True
    try:
        yield
    finally:
        Absent.loading = False


class Shaped:
    """The internal class that JAX calls `ShapedArray`: the shape and dtype of any value."""

    def __init__(self, shape: Any, dtype: Any, weak_type: bool = False) -> None:
        self.shape, self.dtype, self.weak_type = tuple(shape), np.dtype(dtype), weak_type

    def __eq__(self, other: object) -> bool:
        kind = tuple(getattr(other, name, None) for name in ("shape", "dtype", "weak_type"))
        return kind == (self.shape, self.dtype, self.weak_type)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def str_short(self) -> str:
        """Return the text that names of test cases use."""
        letter = "b" if self.dtype == bool else self.dtype.kind
        return f"{letter}{8 * self.dtype.itemsize}[{','.join(map(str, self.shape))}]"


MADE: dict[str, Any] = {
    "jax._src.lib.ifrt_version": 10**6,
    "jax._src.lib.jaxlib_extension_version": 10**6,
    "jax._src.named_sharding.DuplicateSpecError": ValueError,
    "jax._src.random.prng.PRNGImpl": lambda *args, **keywords: Absent("PRNGImpl"),
    "jax._src.random.prng.prngs": {"threefry2x32": Absent("jax._src.random.prng.prngs")},
    "jax._src.sharding.IndivisibleError": ValueError,
    "jax._src.tree_util.treedef_is_strict_leaf": lambda tree: tree.num_nodes == 1,
    "jax.core.ShapedArray": Shaped,
}
"""Internal names that files need to be loaded, or that public ones can stand for."""


class Facade(ModuleType):
    """The module `full` as a test file sees it; `backing` is the library's module of that name."""

    def __init__(self, full: str, backing: Any, resolve: Callable[[str, Any, str], Any]) -> None:
        super().__init__(full)
        self.__dict__.update(_full=full, _backing=backing, _resolve=resolve, __file__="<facade>")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._resolve(f"{self._full}.{name}", self._backing, name)


def root_of(library: Any, stubs: Mapping[str, Any]) -> Facade:
    """Return the result of `import jax` when `library` is under test; `stubs` have priority."""

    def within(path: str) -> Any:
        found: Any = library
        for part in path.split("."):
            found = None if found is None else _attribute(found, part)
        return found

    for name, path in COUNTERPARTS.items():
        MADE.setdefault(f"jax.core.{name}", within(path))

    def resolve(full: str, backing: Any, name: str) -> Any:
        if full in stubs:
            return stubs[full]
        if full in MADE:
            return MADE[full]
        if full == "jax._src":
            return Facade(full, None, resolve)
        if full.startswith("jax._src."):
            return internal(full)
        if UNUSABLE.fullmatch(full):
            return Absent(full)
        found = _attribute(backing, name)
        if found is None and name in COUNTERPARTS:
            found = within(COUNTERPARTS[name])
        if isinstance(found, ModuleType):
            return Facade(full, found, resolve)
        if found is None and _lacks(backing, name):
            return Inert if full in INERT else Absent(full)
        return found

    def internal(full: str) -> Any:
        inside = full.removeprefix("jax._src.")
        top, _, rest = inside.partition(".")
        if top in MACHINERY:
            return (
                _attribute(import_module(f"jax._src.{top}"), rest) if rest else import_module(full)
            )
        if top == "internal_test_util" and rest:
            return import_module(full)
        if inside in CONTAINERS:
            return Facade(full, None, resolve)
        for pattern, public in PUBLIC:
            if re.fullmatch(pattern, inside):
                found = within(re.sub(pattern, public, inside))
                if isinstance(found, ModuleType):
                    return Facade(full, found, resolve)
                if found is not None:
                    return found
        name = inside.rpartition(".")[2]
        if name in COUNTERPARTS:
            return within(COUNTERPARTS[name])
        return Absent(full)

    return Facade("jax", library, resolve)


def _attribute(owner: Any, name: str) -> Any:
    """Return `owner.name`, also for a submodule that is not yet imported; `None` if there is
    none.
    """
    try:
        return getattr(owner, name)
    except AttributeError:
        pass
    try:
        return import_module(f"{owner.__name__}.{name}")
    except ImportError:
        return None


def _lacks(owner: Any, name: str) -> bool:
    """Return whether there is no attribute of that name; some attributes, as `numpy.newaxis`,
    are `None`.
    """
    return _attribute(owner, name) is None and not hasattr(owner, name)
