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
from shardir.frontend.dispatch.execution_context import (
    disable_jit,
    execution_context,
    restore_execution_context,
    set_default_device,
    set_jit_disabled,
)
from shardir.frontend.errors import SettingError
from shardir.frontend.setting_values import PLATFORMS
from shardir.frontend.settings import SETTINGS
from shardir.frontend.source_locations import with_location
from shardir.interop.jax_shim.ignored_settings import (
    CHECKS,
    IMPLEMENTATION_SETTINGS,
    REFUSED_SETTINGS,
    ignore_setting,
    refuse_setting,
)


class UncoveredSetting(ShardirError, AttributeError):
    """A JAX setting that shardir does not have."""


RENAMED_SETTINGS = {
    "x64_enabled": "enable_x64",
    "jax_platform_name": "shown_platform",
    "jax_platforms": "shown_platform",
}
"""Settings with another name in shardir."""

CONTEXT_SETTINGS = {"jax_default_device": "device", "jax_disable_jit": "jit_disabled"}
"""Settings that are attributes of the execution context."""

PLATFORM_ALIASES = {"cuda": "gpu", "rocm": "gpu"}


def change_setting(name: str, value: Any) -> None:
    """Set the JAX setting `name`; raise `UncoveredSetting` if shardir has no equivalent."""
    counts = re.fullmatch(r"jax_(?:num_)?(\w+?)_device(?:s|_count)", name)
    if counts and counts[1] in PLATFORMS:
        config.update("num_cpu_devices", value)
        config.update("shown_platform", counts[1])
    elif (current := RENAMED_SETTINGS.get(name, name)) == "shown_platform":
        # The first of several platforms counts; an empty value means any platform.
        first = str(value or "").partition(",")[0]
        if first:
            config.update(current, PLATFORM_ALIASES.get(first, first))
    elif current.removeprefix("jax_") in SETTINGS:
        config.update(current, value)
    elif name == "jax_disable_jit":
        if not isinstance(value, bool):
            raise SettingError(
                with_location(f"the setting {name} of JAX is {value!r}; it must be True or False")
            )
        set_jit_disabled(value)
    elif name == "jax_default_device":
        set_default_device(value)
    elif name in CHECKS:
        ignore_setting(name, value)
    elif name in REFUSED_SETTINGS:
        refuse_setting(name, value)
    elif name not in IMPLEMENTATION_SETTINGS:
        raise _unknown_setting_error(name)


def read_setting(name: str) -> object:
    """Return the value of the JAX setting `name`."""
    current = RENAMED_SETTINGS.get(name, name).removeprefix("jax_")
    if current in SETTINGS:
        return getattr(config, current)
    if name in CONTEXT_SETTINGS:
        return getattr(execution_context(), CONTEXT_SETTINGS[name])
    if name in CHECKS:
        return CHECKS[name].inactive[0]
    if name in REFUSED_SETTINGS:
        return REFUSED_SETTINGS[name].value
    raise _unknown_setting_error(name)


def _unknown_setting_error(name: str) -> UncoveredSetting:
    names = {
        word.replace("jax_", ""): word
        for word in (*RENAMED_SETTINGS, *CHECKS, *IMPLEMENTATION_SETTINGS)
    }
    names.update({word: f"jax_{word}" for word in SETTINGS})
    close = get_close_matches(name.removeprefix("jax_"), sorted(names), 1, 0.5)
    near = f"the nearest is {names[close[0]]!r}" if close else "there is nothing like it"
    return UncoveredSetting(
        with_location(f"the setting {name!r} of JAX is not covered by shardir; {near}")
    )


class JaxConfig:
    """`jax.config`, in older versions also `jax.config.config`."""

    __slots__ = ()

    @property
    def config(self) -> "JaxConfig":
        return self

    @property
    def FLAGS(self) -> "JaxFlags":
        return JaxFlags()

    def update(self, name: str, value: object) -> None:
        """Change a JAX setting."""
        change_setting(name, value)

    def read(self, name: str) -> Any:
        """Return the value of a JAX setting."""
        return read_setting(name)

    def parse_flags_with_absl(self) -> None:
        """Do nothing: shardir has no command-line flags."""

    config_with_absl = parse_flags_with_absl

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return read_setting(name)

    def __setattr__(self, name: str, value: object) -> None:
        raise SettingError(
            with_location(
                f"jax.config.{name} cannot be assigned; write jax.config.update({name!r}, ...)"
            )
        )

    def __repr__(self) -> str:
        return "jax.config by shardir"


class JaxFlags:
    """`jax.config.FLAGS`, whose settings can be assigned."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return read_setting(name)

    def __setattr__(self, name: str, value: object) -> None:
        change_setting(name, value)


DEVICE_COUNT_FLAG = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


_applied_xla_flags: ContextVar[str] = ContextVar("shardir_flags_of_xla", default="")
"""The value of `XLA_FLAGS` that was last applied, so that later settings of the program persist."""


def apply_xla_flags() -> None:
    """Set the number of devices from `XLA_FLAGS` if its value has changed."""
    flags = os.environ.get("XLA_FLAGS", "")
    if flags == _applied_xla_flags.get():
        return
    _applied_xla_flags.set(flags)
    counts = DEVICE_COUNT_FLAG.findall(flags)
    if counts and config.shown_platform == "cpu":
        config.update("num_cpu_devices", int(counts[-1]))


ENVIRONMENT_SETTINGS = {
    "JAX_DEFAULT_MATMUL_PRECISION": "default_matmul_precision",
    "JAX_DEFAULT_PRNG_IMPL": "default_prng_impl",
    "JAX_ENABLE_X64": "enable_x64",
    "JAX_NUM_CPU_DEVICES": "num_cpu_devices",
    "JAX_PLATFORMS": "jax_platforms",
    "JAX_PLATFORM_NAME": "jax_platform_name",
    "JAX_THREEFRY_PARTITIONABLE": "threefry_partitionable",
}
"""JAX's environment variables that shardir supports, and their settings."""

BOOLEAN_TEXTS = {
    **dict.fromkeys(("y", "yes", "t", "true", "on", "1"), True),
    **dict.fromkeys(("n", "no", "f", "false", "off", "0"), False),
}
"""The texts that JAX accepts as booleans in environment variables."""

_reported_variables: set[str] = set()
"""The variables that have been reported as ignored."""


def apply_environment() -> bool:
    """Apply JAX's environment variables; return whether JIT is disabled.

    Variables without effect here are reported on stderr, each once. Raises `SettingError` for an
    invalid value.
    """
    variables = {
        name: text for name, text in os.environ.items() if name.startswith("JAX_") and text
    }
    switches = ("JAX_ENABLE_X64", "JAX_THREEFRY_PARTITIONABLE", "JAX_DISABLE_JIT")
    truths = {name: _parse_boolean(name, variables[name]) for name in switches if name in variables}
    for name, setting in ENVIRONMENT_SETTINGS.items():
        text = variables.get(name)
        if text is None or (name == "JAX_NUM_CPU_DEVICES" and text.strip() == "-1"):
            continue
        value = truths.get(name, text)
        try:
            change_setting(setting, value)
        except SettingError as error:
            reason = str(error).partition("; ")[2].partition("\n")[0]
            raise SettingError(f"the environment variable {name} is {text!r}; {reason}") from None
        if name == "JAX_NUM_CPU_DEVICES":
            _applied_xla_flags.set(os.environ.get("XLA_FLAGS", ""))
    ignored = sorted(
        variables.keys() - ENVIRONMENT_SETTINGS.keys() - {"JAX_DISABLE_JIT"} - _reported_variables
    )
    if ignored:
        _reported_variables.update(ignored)
        ignored_names = ", ".join(ignored)
        sys.stderr.write(f"shardir ignores environment variables of JAX: {ignored_names}\n")
    return truths.get("JAX_DISABLE_JIT", False)


def _parse_boolean(name: str, text: str) -> bool:
    result = BOOLEAN_TEXTS.get(text.lower())
    if result is None:
        raise SettingError(f"the environment variable {name} is {text!r}; it must be true or false")
    return result


@contextmanager
def program_settings(settings: Mapping[str, object]) -> Iterator[None]:
    """Apply `settings` in a block, and restore all settings at its end.

    JAX's environment variables apply where `settings` do not. Integers in indices that are out of
    range are no errors, as in JAX. `XLA_FLAGS` counts as applied if `settings` state the number of
    devices.
    """
    has_device_count = "num_cpu_devices" in settings
    token = _applied_xla_flags.set(os.environ.get("XLA_FLAGS", "") if has_device_count else "")
    try:
        with config(), restore_execution_context(), ExitStack() as stack:
            if apply_environment():
                stack.enter_context(disable_jit())
            stack.enter_context(config(**{"check_static_indices": False, **settings}))
            yield
    finally:
        _applied_xla_flags.reset(token)
