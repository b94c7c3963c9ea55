"""Settings of how programs are traced and run.

A setting is looked up in four places, in this order: the enclosing `with config(...)` block,
`config.update(...)`, its environment variable, its default. Blocks are context variables: each
thread and each asyncio task has its own, and leaving a block restores the previous values. `update`
inside a block changes that block alone; outside of any block it changes the process.

    config.update("enable_x64", True)
    with config(num_cpu_devices=4, verify=True):
        ...
    config.enable_x64
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import final

from shardir.frontend.call_signatures import with_method_errors, with_signature_errors
from shardir.frontend.errors import UnknownSetting
from shardir.frontend.settings import SETTINGS, find_setting, read_environment
from shardir.frontend.source_locations import with_location


@final
class _ConfigScope:
    """Settings that were chosen together, and a cached snapshot of all settings."""

    __slots__ = ("chosen", "snapshot")

    def __init__(self, chosen: Mapping[str, object]) -> None:
        self.chosen = chosen
        self.snapshot: tuple[tuple[str, object], ...] | None = None

    def read(self, name: str) -> object:
        return self.chosen[name] if name in self.chosen else SETTINGS[name].default


_block_scope: ContextVar[_ConfigScope | None] = ContextVar("shardir_settings", default=None)
_process_scopes: list[_ConfigScope] = []
"""The settings of the process once they are first read; native code reads them here."""


def _current_scope() -> _ConfigScope:
    """Return the settings in effect: those of the block, otherwise of the process.

    The environment is read once, when a setting is first read.
    """
    block = _block_scope.get()
    if block is not None:
        return block
    if not _process_scopes:
        _process_scopes[:] = [_ConfigScope(read_environment(os.environ))]
    return _process_scopes[0]


def _read_setting(name: str) -> object:
    return _current_scope().read(name)


@with_method_errors
class Config:
    """The settings in effect. Read them as attributes; change them with `update` or in a block."""

    __slots__ = ()

    @property
    def num_cpu_devices(self) -> int:
        """Number of virtual CPU devices (8; `SHARDIR_CPU_DEVICES`)."""
        count = _read_setting("num_cpu_devices")
        assert isinstance(count, int)
        return count

    @property
    def shown_platform(self) -> str:
        """Platform name of CPU devices (cpu; `SHARDIR_SHOWN_PLATFORM`).

        For programs that request devices of another platform; CPU devices are used in their place.
        """
        return str(_read_setting("shown_platform"))

    @property
    def num_gpu_devices(self) -> int | None:
        """Number of GPU devices (one for each GPU; `SHARDIR_GPU_DEVICES`).

        If there are more devices than GPUs, devices share them, which shows how a program behaves
        on several GPUs.
        """
        count = _read_setting("num_gpu_devices")
        assert count is None or isinstance(count, int)
        return count

    @property
    def enable_x64(self) -> bool:
        """True if Python and NumPy numbers keep 64 bits (no; `SHARDIR_ENABLE_X64`)."""
        return bool(_read_setting("enable_x64"))

    @property
    def threefry_partitionable(self) -> bool:
        """True if each random bit depends on its own position alone (yes)."""
        return bool(_read_setting("threefry_partitionable"))

    @property
    def random_seed_offset(self) -> int:
        """Number that is added to every seed of random keys (0; `SHARDIR_RANDOM_SEED_OFFSET`)."""
        offset = _read_setting("random_seed_offset")
        assert isinstance(offset, int)
        return offset

    @property
    def default_prng_impl(self) -> str:
        """The implementation of random keys ("threefry2x32"; or "rbg", "unsafe_rbg").

        It makes keys where none is named, and interprets keys that are words, as in JAX.
        """
        return str(_read_setting("default_prng_impl"))

    @property
    def default_matmul_precision(self) -> str | None:
        """Precision of products of which none is stated (none).

        The name of one of JAX's algorithms (`lax.DotAlgorithmPreset`) states the element types in
        which such products are computed. Other precisions are accepted without effect: products
        have the full precision of their element type. Functions of which JAX fixes the precision,
        such as `linalg.solve`, ignore the setting.
        """
        chosen = _read_setting("default_matmul_precision")
        return None if chosen is None else str(chosen)

    @property
    def legacy_prng_key(self) -> str:
        """Treatment of random keys that are words, such as u32[2], instead of typed keys.

        `"allow"`, the default: they are accepted. `"warn"`: a random function warns when it is
        traced with such a key. `"error"`: it refuses the key.
        """
        return str(_read_setting("legacy_prng_key"))

    @property
    def enable_custom_prng(self) -> bool:
        """True if `random.PRNGKey`, and random functions of words, return typed keys (no)."""
        return bool(_read_setting("enable_custom_prng"))

    @property
    def dump_dir(self) -> str | None:
        """Folder for the program text after every pass (none; `SHARDIR_DUMP`)."""
        folder = _read_setting("dump_dir")
        return None if folder is None else str(folder)

    @property
    def verify(self) -> bool:
        """True if every pass is verified numerically (no; `SHARDIR_VERIFY`)."""
        return bool(_read_setting("verify"))

    @property
    def isolated(self) -> bool:
        """True if devices run separately, for debugging (no; `SHARDIR_ISOLATED`).

        Each device runs its whole program on separate memory with NumPy, which is slow.
        """
        return bool(_read_setting("isolated"))

    @property
    def gather(self) -> bool:
        """True if reading an array that several processes hold gathers it (no; `SHARDIR_GATHER`).

        Every process must then read the same arrays in the same order.
        """
        return bool(_read_setting("gather"))

    @property
    def check_replicated_inputs(self) -> bool:
        """True if processes compare replicated inputs in every call (yes;
        `SHARDIR_CHECK_REPLICATED_INPUTS`).

        Without the setting they compare them only before the first run of a program. Later calls
        with different values in one process then give wrong results without an error.
        """
        return bool(_read_setting("check_replicated_inputs"))

    @property
    def uneven(self) -> str | None:
        """Treatment of dimensions that a sharding does not divide (none; `SHARDIR_UNEVEN`).

        `None`: an error for arguments and results, padding inside of programs. `"pad"`: padding
        everywhere except in `shard_map`, where functions would see it and calls opt in.
        `"replicate"` and `"error"` apply to the inside of programs: shard as far as it divides, or
        raise an error.
        """
        chosen = _read_setting("uneven")
        return None if chosen is None else str(chosen)

    @property
    def on_fallback(self) -> str:
        """Treatment of sharded operations without a factor rule (`SHARDIR_ON_FALLBACK`).

        `"replicate"`, the default: every device runs the operation on replicated operands, and the
        program states how much data that receives. `"error"`: such a program is refused.
        """
        return str(_read_setting("on_fallback"))

    @property
    def grad_reduce_dtype(self) -> str | None:
        """The dtype in which devices add the partial sums of gradients in narrower floats (none;
        `SHARDIR_GRAD_REDUCE_DTYPE`).

        `None`: the dtype of the gradient. `"float32"` and `"float64"`: each device accumulates its
        partial sum in this dtype, the collective sends it, and the result is rounded once, to the
        float of more bits if the program converts it to one. The collective sends more bytes. A
        partial sum that a loop of the program accumulates, that several operations use, or that the
        program multiplies by an array before the collective is first rounded on each device.
        """
        chosen = _read_setting("grad_reduce_dtype")
        return None if chosen is None else str(chosen)

    @property
    def explicit_sharding(self) -> str:
        """Treatment of ambiguous sharding types on meshes with Explicit axes
        (`SHARDIR_EXPLICIT_SHARDING`).

        `"strict"`, the default: operations raise `ShardingTypeError` where JAX does. `"lenient"`:
        they keep the sharding of the operand with the most bytes, and state the reason in `why`.
        """
        return str(_read_setting("explicit_sharding"))

    @property
    def check_static_indices(self) -> bool:
        """True if an integer in an index that is out of range is an error (yes;
        `SHARDIR_CHECK_STATIC_INDICES`).

        False: the rules of traced integers apply, as in JAX. A read returns the nearest element,
        and an update out of range is dropped. `shardir as-jax` and `shardir_as_jax` set it.
        """
        return bool(_read_setting("check_static_indices"))

    @property
    def shardy_exact(self) -> bool:
        """True if programs reshard as Shardy does instead of minimizing communication (no;
        `SHARDIR_SHARDY_EXACT`).
        """
        return bool(_read_setting("shardy_exact"))

    @property
    def passes(self) -> str | None:
        """The pipeline of programs (none: the default; `SHARDIR_PASSES`).

        The step `default` stands for the default passes: `"default,overlap"` adds a pass, and
        `"default,after:partition,collective-matmul"` adds one at a position.
        """
        chosen = _read_setting("passes")
        return None if chosen is None else str(chosen)

    @property
    def machine(self) -> str | None:
        """The machine for which `AUTO` plans: a name, or the path of a description (none;
        `SHARDIR_MACHINE`).
        """
        chosen = _read_setting("machine")
        return None if chosen is None else str(chosen)

    @property
    def log_compiles(self) -> bool:
        """True if each compilation of a jitted function is logged with the reason for it (no;
        `SHARDIR_LOG_COMPILES`).

        The logger is `shardir.jit`, the level WARNING. `f.cache_info()` returns the same reasons.
        """
        return bool(_read_setting("log_compiles"))

    @property
    def check_tracer_leaks(self) -> bool:
        """True if a traced value that is still referenced when its trace has ended is an error (no;
        `SHARDIR_CHECK_TRACER_LEAKS`).

        Every trace then runs the garbage collector, which is slow.
        """
        return bool(_read_setting("check_tracer_leaks"))

    @property
    def debug_nans(self) -> bool:
        """True if a result with NaN is an error that names the first operation that makes NaN (no;
        `SHARDIR_DEBUG_NANS`).

        Every result is examined, and calls do not use the native call cache, which is slow.
        """
        return bool(_read_setting("debug_nans"))

    @property
    def debug_infs(self) -> bool:
        """True if a result with an infinity is an error, as `debug_nans` does for NaN (no;
        `SHARDIR_DEBUG_INFS`).
        """
        return bool(_read_setting("debug_infs"))

    @property
    def native_dispatch(self) -> bool:
        """True if the C extension, where it is installed, runs calls whose signature was seen
        before (yes; `SHARDIR_NATIVE_DISPATCH`).

        The import of shardir determines this setting; only the environment variable changes it.
        """
        return bool(_read_setting("native_dispatch"))

    @property
    def traceback(self) -> str:
        """Frames in the tracebacks of errors in the user's program (`SHARDIR_TRACEBACK`).

        `"short"`, the default: the user's frames. `"full"`: all frames, including those of this
        package.
        """
        return str(_read_setting("traceback"))

    def __getattr__(self, name: str) -> object:
        return _read_setting(find_setting(name).name)

    def __setattr__(self, name: str, value: object) -> None:
        find_setting(name)
        raise UnknownSetting(
            with_location(
                f"config.{name} cannot be assigned; write config.update({name!r}, {value!r})"
            )
        )

    def update(self, name: str, value: object) -> None:
        """Change a setting in the enclosing block, or outside of any block for the process."""
        setting = find_setting(name)
        setting.check_changeable()
        kept = setting.validate(value, f"the setting {setting.name}")
        changed = _ConfigScope({**_current_scope().chosen, setting.name: kept})
        if _block_scope.get() is None:
            _process_scopes[:] = [changed]
        else:
            _block_scope.set(changed)

    def __call__(self, **settings: object) -> AbstractContextManager[None]:
        """Return a context manager in which `settings` are in effect and changes by `update` are
        local.
        """
        found = [(find_setting(name), value) for name, value in settings.items()]
        for setting, _ in found:
            setting.check_changeable()
        kept = {s.name: s.validate(value, f"the setting {s.name}") for s, value in found}
        return _enter_settings(kept)

    def snapshot(self) -> tuple[tuple[str, object], ...]:
        """Return the settings that affect programs with their values, which are part of the cache
        key of each trace."""
        scope = _current_scope()
        if scope.snapshot is None:
            scope.snapshot = tuple(
                (name, scope.read(name))
                for name, setting in SETTINGS.items()
                if setting.affects_programs
            )
        return scope.snapshot

    def __repr__(self) -> str:
        values = ((name, _read_setting(name)) for name in SETTINGS)
        return f"config({', '.join(f'{name}={value!r}' for name, value in values)})"


@contextmanager
def _enter_settings(settings: Mapping[str, object]) -> Iterator[None]:
    token = _block_scope.set(_ConfigScope({**_current_scope().chosen, **settings}))
    try:
        yield
    finally:
        _block_scope.reset(token)


config = Config()


@with_signature_errors
def set_cpu_devices(count: int) -> None:
    """Set the number of virtual CPU devices. Existing arrays keep their devices."""
    config.update("num_cpu_devices", count)


@with_signature_errors
def cpu_devices(count: int) -> AbstractContextManager[None]:
    """Return a context manager with `count` virtual CPU devices."""
    return config(num_cpu_devices=count)


@with_signature_errors
def enable_x64(enabled: bool = True) -> AbstractContextManager[None]:
    """Return a context manager in which numbers keep 64 bits (or do not, with `False`)."""
    return config(enable_x64=enabled)


@with_signature_errors
def threefry_partitionable(enabled: bool = True) -> AbstractContextManager[None]:
    """Return a context manager that sets whether each random bit depends on its own position
    alone."""
    return config(threefry_partitionable=enabled)


@with_signature_errors
def default_prng_impl(name: str) -> AbstractContextManager[None]:
    """Return a context manager that sets the implementation of random keys."""
    return config(default_prng_impl=name)


@with_signature_errors
def default_matmul_precision(precision: str | None) -> AbstractContextManager[None]:
    """Return a context manager that sets the precision of products of which none is stated."""
    return config(default_matmul_precision=precision)


@with_signature_errors
def legacy_prng_key(mode: str) -> AbstractContextManager[None]:
    """Return a context manager that sets the treatment of random keys that are two words."""
    return config(legacy_prng_key=mode)


@with_signature_errors
def enable_custom_prng(enabled: bool = True) -> AbstractContextManager[None]:
    """Return a context manager that sets whether `random.PRNGKey` returns typed keys."""
    return config(enable_custom_prng=enabled)


@with_signature_errors
def dump_dir(folder: str | os.PathLike[str] | None) -> AbstractContextManager[None]:
    """Return a context manager that writes programs to `folder` after every pass."""
    return config(dump_dir=folder)


@with_signature_errors
def verify(enabled: bool = True) -> AbstractContextManager[None]:
    """Return a context manager that sets whether every pass is verified numerically."""
    return config(verify=enabled)


@with_signature_errors
def log_compiles(enabled: bool = True) -> AbstractContextManager[None]:
    """Return a context manager that sets whether the reasons of compilations are logged."""
    return config(log_compiles=enabled)


@with_signature_errors
def check_tracer_leaks(enabled: bool = True) -> AbstractContextManager[None]:
    """Return a context manager that sets whether a traced value that outlives its trace is an
    error."""
    return config(check_tracer_leaks=enabled)


checking_leaks = check_tracer_leaks


@with_signature_errors
def debug_nans(enabled: bool = True) -> AbstractContextManager[None]:
    """Return a context manager that sets whether a result with NaN is an error."""
    return config(debug_nans=enabled)


@with_signature_errors
def debug_infs(enabled: bool = True) -> AbstractContextManager[None]:
    """Return a context manager that sets whether a result with an infinity is an error."""
    return config(debug_infs=enabled)


@with_signature_errors
def gather(enabled: bool = True) -> AbstractContextManager[None]:
    """Return a context manager that sets whether reading an array of several processes gathers
    it."""
    return config(gather=enabled)


@with_signature_errors
def uneven(mode: str | None) -> AbstractContextManager[None]:
    """Return a context manager that sets the treatment of dimensions that do not divide."""
    return config(uneven=mode)


def resolve_pipeline(chosen: str | None, word: str) -> str | None:
    """Return the validated keyword `passes` of `word`, or the setting if it is `None`."""
    if chosen is None:
        return config.passes
    return str(SETTINGS["passes"].validate(chosen, f"passes of {word}"))


def resolve_uneven_mode(chosen: str | None, word: str) -> str | None:
    """Return the validated keyword `uneven` of `word`, or the setting if it is `None`."""
    if chosen is None:
        return config.uneven
    return str(SETTINGS["uneven"].validate(chosen, f"uneven of {word}"))
