"""JAX's settings without effect in shardir, and reports of values that have an effect in JAX."""

import sys
from collections.abc import Mapping
from contextlib import ContextDecorator
from dataclasses import dataclass
from typing import Final, final

from shardir.frontend.errors import SettingError
from shardir.frontend.source_locations import with_location

SPEED_SETTINGS: Final = frozenset(
    [
        "jax_compilation_cache_dir",
        "jax_cpu_enable_async_dispatch",
        "jax_disable_most_optimizations",
        "jax_enable_compilation_cache",
        "jax_explain_cache_misses",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
        "jax_pprint_use_color",
        "jax_traceback_filtering",
    ]
)
"""Settings that affect the speed or the output of JAX only."""


@dataclass(frozen=True)
class Check:
    """The values of a setting by which JAX checks programs or permits lower precision.

    shardir acts as `inactive` values state. It ignores `active` values; the empty tuple stands for
    all others.
    """

    inactive: tuple[str | bool, ...]
    active: tuple[str | bool, ...]


_SWITCH = Check((False,), (True,))
_TRANSFER_GUARD = Check(("allow",), ("log", "disallow", "log_explicit", "disallow_explicit"))

CHECKS: Final[Mapping[str, Check]] = {
    "jax_array_garbage_collection_guard": Check(("allow",), ("log", "fatal")),
    "jax_debug_infs": _SWITCH,
    "jax_debug_key_reuse": _SWITCH,
    "jax_default_matmul_precision": Check(("default", "highest", "float32"), ()),
    "jax_enable_checks": _SWITCH,
    "jax_numpy_dtype_promotion": Check(("standard",), ("strict",)),
    "jax_numpy_rank_promotion": Check(("allow",), ("warn", "raise")),
    "jax_transfer_guard": _TRANSFER_GUARD,
    "jax_transfer_guard_device_to_device": _TRANSFER_GUARD,
    "jax_transfer_guard_device_to_host": _TRANSFER_GUARD,
    "jax_transfer_guard_host_to_device": _TRANSFER_GUARD,
}
"""Settings without effect in shardir that affect results, errors or warnings in JAX."""

_reported_settings: set[str] = set()
"""The settings, with values, that have been reported as ignored."""


def ignore_setting(name: str, value: object) -> None:
    """Report an active value of a setting in `CHECKS` on stderr, each once.

    Raises `SettingError` for a value that JAX does not accept.
    """
    check = CHECKS[name]
    if value is None or value in check.inactive:
        return
    if check.active and value not in check.active:
        values = ", ".join(map(repr, (*check.inactive, *check.active)))
        raise SettingError(
            with_location(f"the setting {name} of JAX is {value!r}; it must be one of {values}")
        )
    setting = f"{name}={value!r}"
    if setting not in _reported_settings:
        _reported_settings.add(setting)
        sys.stderr.write(f"shardir ignores settings of JAX: {setting}\n")


@final
class IgnoredSettingContext(ContextDecorator):
    """A context manager and decorator of JAX that changes a setting in `CHECKS`."""

    def __init__(self, name: str, value: object) -> None:
        """Report a value that is ignored."""
        ignore_setting(name, value)

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *raised: object) -> None:
        """Do nothing."""
