"""Validators of settings: each returns the normalized value, or raises `ValueError(must be)`."""

import os
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
    if value is None or value in UNEVEN_MODES:
        return None if value is None else str(value)
    raise ValueError("'pad', 'replicate', 'error' or None")


FALLBACK_MODES = ("replicate", "error")
"""Treatments of a sharded operation without a factor rule; see `Config.on_fallback`."""

WIDE_FLOATS = {"float32": "f32", "float64": "f64"}
"""The dtypes of sums over devices; see `Config.grad_reduce_dtype`."""


def as_gradient_dtype(value: object) -> str | None:
    if value is None:
        return None
    name = value if isinstance(value, str) else getattr(value, "__name__", str(value))
    if name in WIDE_FLOATS:
        return name
    raise ValueError("'float32', 'float64' or None")


EXPLICIT_MODES = ("strict", "lenient")
"""Treatments of ambiguous sharding types; see `Config.explicit_sharding`."""

TRACEBACK_MODES = ("short", "full")
"""The extents of tracebacks; see `Config.traceback`."""

LEGACY_KEY_MODES = ("allow", "warn", "error")
"""Treatments of random keys that are words; see `Config.legacy_prng_key`."""

PLATFORMS = ("cpu", "gpu", "tpu", "ipu")
"""Names of platforms."""


def as_platform(value: object) -> str:
    if isinstance(value, str) and value in PLATFORMS:
        return str(value)
    raise ValueError("'cpu', 'gpu', 'tpu' or 'ipu'")


MATMUL_PRECISIONS = ("default", "high", "highest", "bfloat16", "tensorfloat32", "float32")
"""Precisions of products that are no algorithms; see `Config.default_matmul_precision`."""


def as_matmul_precision(value: object) -> str | None:
    names = (*MATMUL_PRECISIONS, *product_dtypes.ALGORITHMS)
    if value is None or value in names:
        return None if value is None else str(value)
    raise ValueError(f"{', '.join(map(repr, names))} or None")


def as_key_implementation(value: object) -> str:
    if isinstance(value, str) and value in IMPLEMENTATIONS_BY_NAME:
        return str(value)
    raise ValueError("'threefry2x32', 'rbg' or 'unsafe_rbg'")


def as_legacy_key_mode(value: object) -> str:
    if value in LEGACY_KEY_MODES:
        return str(value)
    raise ValueError("'allow', 'warn' or 'error'")


def as_fallback(value: object) -> str:
    if value in FALLBACK_MODES:
        return str(value)
    raise ValueError("'replicate' or 'error'")


def as_explicit(value: object) -> str:
    if value in EXPLICIT_MODES:
        return str(value)
    raise ValueError("'strict' or 'lenient'")


def as_traceback(value: object) -> str:
    if value in TRACEBACK_MODES:
        return str(value)
    raise ValueError("'short' or 'full'")
