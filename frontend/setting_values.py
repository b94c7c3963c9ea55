"""Validators of settings: each returns the normalized value, or raises `ValueError(must be)`."""

import os
from collections.abc import Iterable
from operator import index
from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import
from shardir.backends.native import FALSE_WORDS
from shardir.errors import PipelineError
from shardir.ir.key_implementations import IMPLEMENTATIONS_BY_NAME
from shardir.text.number_text import parse_natural_number

if TYPE_CHECKING:
    from shardir.ops.contraction import product_dtypes
    from shardir.passes import pipeline
else:
    product_dtypes = lazy_import("shardir.ops.contraction.product_dtypes")
    pipeline = lazy_import("shardir.passes.pipeline")


def as_switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("1", "true", "on", "yes"):
        return True
    if isinstance(value, str) and value.lower() in FALSE_WORDS:
        return False
    raise ValueError("True or False (in the environment: 1 or 0)")


def as_count(value: object) -> int:
    if isinstance(value, str):
        value = parse_natural_number(value.strip())
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError("an integer of at least 1")


def as_integer(value: object) -> int:
    try:
        number = int(value) if isinstance(value, str) else index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = None
    if number is not None and not isinstance(value, bool) and -(2**63) <= number < 2**63:
        return number
    raise ValueError("an integer of at most 64 bits")


def as_optional_count(value: object) -> int | None:
    try:
        return None if value is None else as_count(value)
    except ValueError as must:
        raise ValueError(f"{must}, or None") from None


def as_folder(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    raise ValueError("the path of a folder, or None")


def as_pipeline(value: object) -> str | None:
    if value is None:
        return None
    try:
        pipeline.Pipeline.parse(value)  # type: ignore[arg-type]
    except PipelineError as error:
        raise ValueError(f"a pipeline such as 'default,overlap', or None: {error}") from None
    return str(value)


def as_machine(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, (str, os.PathLike)) and str(value):
        return str(value)
    raise ValueError("the name of a machine, the path of a description, or None")


UNEVEN_MODES = ("pad", "replicate", "error")
"""Treatments of a dimension that its sharding does not divide; see `jit`."""


def as_uneven(value: object) -> str | None:
    return None if value is None else _as_name(value, UNEVEN_MODES, "None")


FALLBACK_MODES = ("replicate", "error")
"""Treatments of a sharded operation without a factor rule; see `Config.on_fallback`."""

WIDE_FLOATS = {"float32": "f32", "float64": "f64"}
"""The dtypes of sums over devices; see `Config.grad_reduce_dtype`."""


def as_gradient_dtype(value: object) -> str | None:
    if value is None:
        return None
    name = value if isinstance(value, str) else getattr(value, "__name__", str(value))
    return _as_name(name, WIDE_FLOATS, "None")


EXPLICIT_MODES = ("strict", "lenient")
"""Treatments of ambiguous sharding types; see `Config.explicit_sharding`."""

TRACEBACK_MODES = ("short", "full")
"""The extents of tracebacks; see `Config.traceback`."""

LEGACY_KEY_MODES = ("allow", "warn", "error")
"""Treatments of random keys that are words; see `Config.legacy_prng_key`."""

PLATFORMS = ("cpu", "gpu", "tpu", "ipu")
"""Names of platforms."""


def as_platform(value: object) -> str:
    return _as_name(value, PLATFORMS)


MATMUL_PRECISIONS = ("default", "high", "highest", "bfloat16", "tensorfloat32", "float32")
"""Precisions of products that are no algorithms; see `Config.default_matmul_precision`."""


def as_matmul_precision(value: object) -> str | None:
    names = (*MATMUL_PRECISIONS, *product_dtypes.ALGORITHMS)
    return None if value is None else _as_name(value, names, "None")


def as_key_implementation(value: object) -> str:
    return _as_name(value, IMPLEMENTATIONS_BY_NAME)


def as_legacy_key_mode(value: object) -> str:
    return _as_name(value, LEGACY_KEY_MODES)


def as_fallback(value: object) -> str:
    return _as_name(value, FALLBACK_MODES)


def as_explicit(value: object) -> str:
    return _as_name(value, EXPLICIT_MODES)


def as_traceback(value: object) -> str:
    return _as_name(value, TRACEBACK_MODES)


def _as_name(value: object, names: Iterable[str], *others: str) -> str:
    """Return a string that is one of the names.

    Other values are not compared with them: comparisons with arrays have no truth value. `others`
    are further values that the error lists.
    """
    choices = list(names)
    if isinstance(value, str) and value in choices:
        return str(value)
    *first, last = (*map(repr, choices), *others)
    raise ValueError(f"{', '.join(first)} or {last}")
