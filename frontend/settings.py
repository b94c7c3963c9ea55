"""The table of settings: names, defaults, environment variables, and validators.

`shardir.frontend.config.Config` documents each setting.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardir.frontend.errors import SettingError, UnknownSetting
from shardir.frontend.setting_values import (
    as_count,
    as_explicit,
    as_fallback,
    as_folder,
    as_gradient_dtype,
    as_integer,
    as_key_implementation,
    as_legacy_key_mode,
    as_machine,
    as_matmul_precision,
    as_optional_count,
    as_pipeline,
    as_platform,
    as_switch,
    as_traceback,
    as_uneven,
)
from shardir.frontend.source_locations import with_location


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `check` returns the normalized value or raises `ValueError(must be)`."""

    name: str
    default: object
    variable: str | None
    check: Callable[[object], object]
    affects_programs: bool = True
    """True if functions are traced again after a change of the setting."""
    is_fixed: bool = False
    """True if the import of shardir determines the setting."""

    def check_changeable(self) -> None:
        """Raise `SettingError` if the setting cannot change."""
        if self.is_fixed:
            raise SettingError(
                with_location(
                    f"the setting {self.name} cannot change after the import of shardir; set the "
                    f"environment variable {self.variable} before Python starts"
                )
            )

    def validate(self, value: object, source: str) -> object:
        """Return the normalized `value` that the user's line gives; `source` names it in errors."""
        try:
            return self.check(value)
        except ValueError as must:
            raise SettingError(with_location(_describe_misfit(value, source, must))) from None


def _describe_misfit(value: object, source: str, must: ValueError) -> str:
    return f"{source} is {value!r}; it must be {must}"


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("num_cpu_devices", 8, "SHARDIR_CPU_DEVICES", as_count),
        Setting("enable_x64", False, "SHARDIR_ENABLE_X64", as_switch),
        Setting("threefry_partitionable", True, None, as_switch),
        Setting("random_seed_offset", 0, "SHARDIR_RANDOM_SEED_OFFSET", as_integer),
        Setting("default_matmul_precision", None, None, as_matmul_precision),
        Setting("default_prng_impl", "threefry2x32", None, as_key_implementation),
        Setting("legacy_prng_key", "allow", None, as_legacy_key_mode),
        Setting("enable_custom_prng", False, None, as_switch),
        Setting("dump_dir", None, "SHARDIR_DUMP", as_folder),
        Setting("verify", False, "SHARDIR_VERIFY", as_switch),
        Setting("uneven", None, "SHARDIR_UNEVEN", as_uneven),
        Setting("on_fallback", "replicate", "SHARDIR_ON_FALLBACK", as_fallback),
        Setting("grad_reduce_dtype", None, "SHARDIR_GRAD_REDUCE_DTYPE", as_gradient_dtype),
        Setting("explicit_sharding", "strict", "SHARDIR_EXPLICIT_SHARDING", as_explicit),
        Setting("check_static_indices", True, "SHARDIR_CHECK_STATIC_INDICES", as_switch),
        Setting("shardy_exact", False, "SHARDIR_SHARDY_EXACT", as_switch),
        Setting("passes", None, "SHARDIR_PASSES", as_pipeline),
        Setting("machine", None, "SHARDIR_MACHINE", as_machine),
        Setting("isolated", False, "SHARDIR_ISOLATED", as_switch),
        Setting("gather", False, "SHARDIR_GATHER", as_switch),
        Setting("check_replicated_inputs", True, "SHARDIR_CHECK_REPLICATED_INPUTS", as_switch),
        Setting("shown_platform", "cpu", "SHARDIR_SHOWN_PLATFORM", as_platform),
        Setting("num_gpu_devices", None, "SHARDIR_GPU_DEVICES", as_optional_count),
        Setting("log_compiles", False, "SHARDIR_LOG_COMPILES", as_switch, affects_programs=False),
        Setting("check_tracer_leaks", False, "SHARDIR_CHECK_TRACER_LEAKS", as_switch),
        Setting("debug_nans", False, "SHARDIR_DEBUG_NANS", as_switch),
        Setting("debug_infs", False, "SHARDIR_DEBUG_INFS", as_switch),
        Setting("traceback", "short", "SHARDIR_TRACEBACK", as_traceback, affects_programs=False),
        Setting(
            "native_dispatch",
            True,
            "SHARDIR_NATIVE_DISPATCH",
            as_switch,
            affects_programs=False,
            is_fixed=True,
        ),
    )
}


def find_setting(name: str) -> Setting:
    """Return the setting `name`, with or without the prefix `jax_`."""
    if (setting := SETTINGS.get(str(name).removeprefix("jax_"))) is None:
        raise UnknownSetting(
            with_location(f"no setting is named {name!r}; the settings are {', '.join(SETTINGS)}")
        )
    return setting


def read_environment(environment: Mapping[str, str]) -> dict[str, object]:
    """Return the settings that environment variables give; empty variables are ignored.

    Raises `SettingError` that names a variable with an invalid value.
    """
    given = {}
    for setting in SETTINGS.values():
        if text := environment.get(setting.variable or "", ""):
            # The user's line that first reads a setting did not give the value.
            try:
                given[setting.name] = setting.check(text)
            except ValueError as must:
                word = f"the environment variable {setting.variable}"
                raise SettingError(_describe_misfit(text, word, must)) from None
    return given
