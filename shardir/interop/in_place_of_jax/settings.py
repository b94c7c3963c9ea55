"""`jax.config`: JAX's settings that shardir supports, and all ways to change them."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import Any

from shardir.errors import ShardirError
from shardir.frontend.config import config
from shardir.frontend.errors import SettingError
from shardir.frontend.locations import point
from shardir.frontend.running import disable_jit
from shardir.frontend.setting_values import PLATFORMS
from shardir.frontend.settings import SETTINGS


class UncoveredSetting(ShardirError, AttributeError):
    """A JAX setting that shardir does not have."""


OTHERWISE = {
    "x64_enabled": "enable_x64",
    "jax_platform_name": "shown_platform",
    "jax_platforms": "shown_platform",
}
"""Settings with another name in shardir."""

GUARDING = frozenset(
    [
        "jax_array_garbage_collection_guard",
        "jax_check_tracer_leaks",
        "jax_compilation_cache_dir",
        "jax_cpu_enable_async_dispatch",
        "jax_debug_infs",
        "jax_debug_key_reuse",
        "jax_debug_nans",
        "jax_default_matmul_precision",
        "jax_disable_most_optimizations",
        "jax_enable_checks",
        "jax_enable_compilation_cache",
        "jax_explain_cache_misses",
        "jax_log_compiles",
        "jax_numpy_dtype_promotion",
        "jax_numpy_rank_promotion",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
        "jax_pprint_use_color",
        "jax_traceback_filtering",
        "jax_transfer_guard",
    ]
)
"""Settings that check JAX or affect its speed: accepted, without effect on results."""

ALIASES = {"cuda": "gpu", "rocm": "gpu"}


def change(name: str, value: Any) -> None:
    """Set the JAX setting `name`; raise `UncoveredSetting` if shardir has no equivalent."""
    counts = re.fullmatch(r"jax_(?:num_)?(\w+?)_device(?:s|_count)", name)
    if counts and counts[1] in PLATFORMS:
        config.update("num_cpu_devices", value)
        config.update("shown_platform", counts[1])
    elif (known := OTHERWISE.get(name, name)) == "shown_platform":
        # The first of several platforms counts; an empty value means any platform.
        first = str(value or "").partition(",")[0]
        if first:
            config.update(known, ALIASES.get(first, first))
    elif known.removeprefix("jax_") in SETTINGS:
        config.update(known, value)
    elif name not in GUARDING:
        raise _unknown(name)


def read(name: str) -> Any:
    """Return the value of the JAX setting `name`."""
    known = OTHERWISE.get(name, name).removeprefix("jax_")
    if known in SETTINGS:
        return getattr(config, known)
    raise _unknown(name)


def _unknown(name: str) -> UncoveredSetting:
    names = {word.replace("jax_", ""): word for word in (*OTHERWISE, *GUARDING)}
    names.update({word: f"jax_{word}" for word in SETTINGS})
    close = get_close_matches(name.removeprefix("jax_"), sorted(names), 1, 0.5)
    near = f"the nearest is {names[close[0]]!r}" if close else "there is nothing like it"
    return UncoveredSetting(point(f"the setting {name!r} of JAX is not covered by shardir; {near}"))


class Settings:
    """`jax.config`, in older versions also `jax.config.config`."""

    __slots__ = ()

    @property
    def config(self) -> "Settings":
        return self

    @property
    def FLAGS(self) -> "Flags":
        return Flags()

    def update(self, name: str, value: Any) -> None:
        """Change a JAX setting."""
        change(name, value)

    def parse_flags_with_absl(self) -> None:
        """Do nothing: shardir has no command-line flags."""

    config_with_absl = parse_flags_with_absl

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return read(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise SettingError(
            point(f"jax.config.{name} cannot be assigned; write jax.config.update({name!r}, ...)")
        )

    def __repr__(self) -> str:
        return "jax.config by shardir"


class Flags:
    """`jax.config.FLAGS`, whose settings can be assigned."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return read(name)

    def __setattr__(self, name: str, value: Any) -> None:
        change(name, value)


FORCED = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


_obeyed: ContextVar[str] = ContextVar("shardir_flags_of_xla", default="")
"""The value of `XLA_FLAGS` that was last applied, so that later settings of the program persist."""


def obey_flags() -> None:
    """Set the number of devices from `XLA_FLAGS` if its value has changed."""
    flags = os.environ.get("XLA_FLAGS", "")
    if flags == _obeyed.get():
        return
    _obeyed.set(flags)
    found = FORCED.findall(flags)
    if found and config.shown_platform == "cpu":
        config.update("num_cpu_devices", int(found[-1]))


OBEYED = {
    "JAX_ENABLE_X64": "enable_x64",
    "JAX_NUM_CPU_DEVICES": "num_cpu_devices",
    "JAX_PLATFORMS": "jax_platforms",
    "JAX_PLATFORM_NAME": "jax_platform_name",
    "JAX_THREEFRY_PARTITIONABLE": "threefry_partitionable",
}
"""JAX's environment variables that shardir supports, and their settings."""

TRUTHS = {
    **dict.fromkeys(("y", "yes", "t", "true", "on", "1"), True),
    **dict.fromkeys(("n", "no", "f", "false", "off", "0"), False),
}
"""The texts that JAX accepts as booleans in environment variables."""

_reported: set[str] = set()
"""The variables that have been reported as ignored."""


def obey_environment() -> bool:
    """Apply JAX's environment variables; return whether JIT is disabled.

    Variables without effect here are reported on stderr, each once. Raises `SettingError` for an
    invalid value.
    """
    given = {name: text for name, text in os.environ.items() if name.startswith("JAX_") and text}
    switches = ("JAX_ENABLE_X64", "JAX_THREEFRY_PARTITIONABLE", "JAX_DISABLE_JIT")
    truths = {name: _truth(name, given[name]) for name in switches if name in given}
    for name, setting in OBEYED.items():
        text = given.get(name)
        if text is None or (name == "JAX_NUM_CPU_DEVICES" and text.strip() == "-1"):
            continue
        value = truths.get(name, text)
        try:
            change(setting, value)
        except SettingError as error:
            reason = str(error).partition("; ")[2].partition("\n")[0]
            raise SettingError(f"the environment variable {name} is {text!r}; {reason}") from None
        if name == "JAX_NUM_CPU_DEVICES":
            _obeyed.set(os.environ.get("XLA_FLAGS", ""))
    ignored = sorted(given.keys() - OBEYED.keys() - {"JAX_DISABLE_JIT"} - _reported)
    if ignored:
        _reported.update(ignored)
        ignored_names = ", ".join(ignored)
        sys.stderr.write(f"shardir ignores environment variables of JAX: {ignored_names}\n")
    return truths.get("JAX_DISABLE_JIT", False)


def _truth(name: str, text: str) -> bool:
    found = TRUTHS.get(text.lower())
    if found is None:
        raise SettingError(f"the environment variable {name} is {text!r}; it must be true or false")
    return found


@contextmanager
def program_settings(settings: Mapping[str, object]) -> Iterator[None]:
    """Apply `settings` in a block, and restore all settings at its end.

    JAX's environment variables apply where `settings` do not. `XLA_FLAGS` counts as applied if
    `settings` state the number of devices.
    """
    known = "num_cpu_devices" in settings
    token = _obeyed.set(os.environ.get("XLA_FLAGS", "") if known else "")
    try:
        with config(), ExitStack() as stack:
            if obey_environment():
                stack.enter_context(disable_jit())
            stack.enter_context(config(**settings))
            yield
    finally:
        _obeyed.reset(token)
