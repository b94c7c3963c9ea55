"""JAX's settings without effect in shardir, and reports of values that have an effect in JAX."""

import sys
from collections.abc import Mapping
from contextlib import ContextDecorator
from dataclasses import dataclass
from enum import Enum
from typing import Final, final

from shardir.frontend.errors import SettingError
from shardir.frontend.source_locations import with_location

IMPLEMENTATION_SETTINGS: Final = frozenset(
    [
        "jax_allow_f16_reductions",
        "jax_bcoo_cusparse_lowering",
        "jax_captured_constants_report_frames",
        "jax_captured_constants_warn_bytes",
        "jax_check_proxy_envs",
        "jax_compilation_cache_check_contents",
        "jax_compilation_cache_dir",
        "jax_compilation_cache_expect_pgle",
        "jax_compilation_cache_include_metadata_in_key",
        "jax_compilation_cache_max_size",
        "jax_compiler_detailed_logging_min_ops",
        "jax_compiler_enable_remat_pass",
        "jax_cpu_collectives_implementation",
        "jax_cpu_enable_async_dispatch",
        "jax_cpu_get_global_topology_timeout_minutes",
        "jax_cpu_get_local_topology_timeout_minutes",
        "jax_cross_host_transfer_socket_address",
        "jax_cross_host_transfer_timeout_seconds",
        "jax_cross_host_transfer_transfer_size",
        "jax_cross_host_transport_addresses",
        "jax_custom_vjp3",
        "jax_debug_leaked_clients_on_clear_backends",
        "jax_debug_log_modules",
        "jax_disable_most_optimizations",
        "jax_distributed_debug",
        "jax_dump_ir_modes",
        "jax_dump_ir_to",
        "jax_embedded_constants_max_bytes",
        "jax_enable_compilation_cache",
        "jax_enable_pgle",
        "jax_enable_preemption_service",
        "jax_enable_recoverability",
        "jax_exec_time_optimization_effort",
        "jax_experimental_unsafe_xla_runtime_errors",
        "jax_explain_cache_misses",
        "jax_export_calling_convention_version",
        "jax_export_ignore_forward_compatibility",
        "jax_force_dcn_cross_host_transfers",
        "jax_hlo_source_file_canonicalization_regex",
        "jax_include_debug_info_in_dumps",
        "jax_include_full_tracebacks_in_locations",
        "jax_log_checkpoint_residuals",
        "jax_logging_level",
        "jax_memory_fitting_effort",
        "jax_memory_fitting_level",
        "jax_optimization_level",
        "jax_persistent_cache_enable_xla_caches",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
        "jax_pgle_aggregation_percentile",
        "jax_pgle_profiling_runs",
        "jax_pjrt_client_create_options",
        "jax_pprint_use_color",
        "jax_ragged_dot_use_gpu_pallas_triton_lowering",
        "jax_ragged_dot_use_ragged_dot_instruction",
        "jax_raise_persistent_cache_errors",
        "jax_refs_to_pins",
        "jax_remat3",
        "jax_remove_custom_partitioning_ptr_from_cache_key",
        "jax_scan3",
        "jax_send_traceback_to_runtime",
        "jax_serialization_version",
        "jax_share_binary_between_hosts",
        "jax_share_binary_between_hosts_timeout_ms",
        "jax_softmax_custom_jvp",
        "jax_sort_devices_by_process_index",
        "jax_source_url_schema",
        "jax_threefry_gpu_kernel_lowering",
        "jax_traceback_filtering",
        "jax_traceback_in_locations_limit",
        "jax_tracer_error_num_traceback_frames",
        "jax_use_direct_linearize",
        "jax_use_emit_pipeline_primitive",
        "jax_use_magma",
        "jax_use_shardy_partitioner",
        "jax_use_simplified_jaxpr_constants",
        "jax_xla_profile_version",
    ]
)
"""Settings that affect the speed, the output or the implementation of JAX only."""


@dataclass(frozen=True)
class Check:
    """The values of a setting by which JAX checks programs.

    shardir acts as `inactive` values state. It ignores `active` values.
    """

    inactive: tuple[str | bool, ...]
    active: tuple[str | bool, ...]


_SWITCH = Check((False,), (True,))
_ERROR_CHECK = Check(("ignore",), ("raise",))
_TRANSFER_GUARD = Check(("allow",), ("log", "disallow", "log_explicit", "disallow_explicit"))

CHECKS: Final[Mapping[str, Check]] = {
    "jax_array_garbage_collection_guard": Check(("allow",), ("log", "fatal")),
    "jax_debug_key_reuse": _SWITCH,
    "jax_disallow_mesh_context_manager": _SWITCH,
    "jax_error_checking_behavior_divide": _ERROR_CHECK,
    "jax_error_checking_behavior_nan": _ERROR_CHECK,
    "jax_error_checking_behavior_oob": _ERROR_CHECK,
    "jax_enable_checks": _SWITCH,
    "jax_numpy_dtype_promotion": Check(("standard",), ("strict",)),
    "jax_numpy_rank_promotion": Check(("allow",), ("warn", "raise")),
    "jax_no_execution": _SWITCH,
    "jax_no_tracing": _SWITCH,
    "jax_thread_guard": _SWITCH,
    "jax_transfer_guard": _TRANSFER_GUARD,
    "jax_transfer_guard_device_to_device": _TRANSFER_GUARD,
    "jax_transfer_guard_device_to_host": _TRANSFER_GUARD,
    "jax_transfer_guard_host_to_device": _TRANSFER_GUARD,
}
"""Settings without effect in shardir that affect results, errors or warnings in JAX."""


@dataclass(frozen=True)
class FixedSetting:
    """A setting whose default in JAX holds in shardir, and what to do instead of a change."""

    value: str | bool
    alternative: str


REFUSED_SETTINGS: Final[Mapping[str, FixedSetting]] = {
    "jax_auto_pcast": FixedSetting(
        True, "operations make invariant operands varying; call lax.pcast where it must be explicit"
    ),
    "jax_explicit_x64_dtypes": FixedSetting(
        "warn", "jax_enable_x64 decides whether dtypes of 64 bits are kept; set it to True"
    ),
    "jax_high_dynamic_range_gumbel": FixedSetting(
        False, "random.gumbel and random.categorical draw more bits with mode='high'"
    ),
    "jax_remove_size_one_mesh_axis_from_type": FixedSetting(
        False,
        "types state the axes of size 1 by which arrays are sharded; make the mesh without axes of "
        "size 1",
    ),
}
"""Settings of JAX that change the results or the types of programs, and cannot change here."""

_reported_settings: set[str] = set()
"""The settings, with values, that have been reported as ignored."""


def ignore_setting(name: str, value: object) -> None:
    """Report an active value of a setting in `CHECKS` on stderr, each once.

    Raises `SettingError` for a value that JAX does not accept.
    """
    check = CHECKS[name]
    if value is None or value in check.inactive:
        return
    if value not in check.active:
        values = ", ".join(map(repr, (*check.inactive, *check.active)))
        raise SettingError(
            with_location(f"the setting {name} of JAX is {value!r}; it must be one of {values}")
        )
    setting = f"{name}={value!r}"
    if setting not in _reported_settings:
        _reported_settings.add(setting)
        sys.stderr.write(f"shardir ignores settings of JAX: {setting}\n")


def refuse_setting(name: str, value: object) -> None:
    """Raise `SettingError` if a setting in `REFUSED_SETTINGS` does not keep its value.

    An enumeration states a value by its name.
    """
    fixed = REFUSED_SETTINGS[name]
    stated = value.name.lower() if isinstance(value, Enum) else value
    if stated != fixed.value:
        raise SettingError(
            with_location(
                f"the setting {name} of JAX must be {fixed.value!r} in shardir: {fixed.alternative}"
            )
        )


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
