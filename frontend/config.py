"""Settings: what a program may choose about how it is traced and run.

A setting is looked up in four places, the nearest first: the `with config(...)` block around the
running code, `config.update(...)`, its environment variable, its default. Blocks are context
variables: each thread and each asyncio task sees its own, and leaving a block restores what was
before, so nothing is left for the next program to trip over. `update` inside a block changes
that block alone; outside of any block it changes the process.

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

from shardir.frontend.errors import UnknownSetting
from shardir.frontend.settings import SETTINGS, find_setting, settings_of


@final
class _Scope:
    """Settings that hold together, and all settings with their values once somebody asked."""

    __slots__ = ("chosen", "snapshot")

    def __init__(self, chosen: Mapping[str, object]) -> None:
        self.chosen = chosen
        self.snapshot: tuple[tuple[str, object], ...] | None = None

    def read(self, name: str) -> object:
        return self.chosen[name] if name in self.chosen else SETTINGS[name].default


_block: ContextVar[_Scope | None] = ContextVar("shardir_settings", default=None)
_process: list[_Scope] = []
"""The settings of the process, once somebody asked; machine code looks at them here."""


def _scope() -> _Scope:
    """The settings in force: those of the block, else of the process.

    The environment is read once, when the first setting is.
    """
    block = _block.get()
    if block is not None:
        return block
    if not _process:
        _process[:] = [_Scope(settings_of(os.environ))]
    return _process[0]


def _read(name: str) -> object:
    return _scope().read(name)


class Config:
    """The settings in force. Read them as attributes; change them by `update` or in a block."""

    __slots__ = ()

    @property
    def num_cpu_devices(self) -> int:
        """How many virtual CPU devices there are (8; `SHARDIR_CPU_DEVICES`)."""
        count = _read("num_cpu_devices")
        assert isinstance(count, int)
        return count

    @property
    def shown_platform(self) -> str:
        """What devices are called (cpu; `SHARDIR_SHOWN_PLATFORM`).

        For programs that ask for devices of another kind; those of this machine stand for them.
        """
        return str(_read("shown_platform"))

    @property
    def num_gpu_devices(self) -> int | None:
        """How many devices GPUs are (one for each; `SHARDIR_GPU_DEVICES`).

        More than there are GPUs share them, which shows how a program behaves on several.
        """
        count = _read("num_gpu_devices")
        assert count is None or isinstance(count, int)
        return count

    @property
    def enable_x64(self) -> bool:
        """Whether Python and NumPy numbers keep 64 bits (no; `SHARDIR_ENABLE_X64`)."""
        return bool(_read("enable_x64"))

    @property
    def threefry_partitionable(self) -> bool:
        """Whether each random bit depends on its own position alone (yes)."""
        return bool(_read("threefry_partitionable"))

    @property
    def dump_dir(self) -> str | None:
        """The folder that receives the program after every pass (none; `SHARDIR_DUMP`)."""
        folder = _read("dump_dir")
        return None if folder is None else str(folder)

    @property
    def verify(self) -> bool:
        """Whether every pass is checked on numbers (no; `SHARDIR_VERIFY`)."""
        return bool(_read("verify"))

    @property
    def isolated(self) -> bool:
        """Whether devices run apart, for finding errors (no; `SHARDIR_ISOLATED`).

        Each computes all of its program on memory of its own, by NumPy and slowly.
        """
        return bool(_read("isolated"))

    @property
    def gather(self) -> bool:
        """Whether reading an array that several processes hold gathers it (no; `SHARDIR_GATHER`).

        Every process has to read the same arrays in the same order then.
        """
        return bool(_read("gather"))

    @property
    def check_replicated_inputs(self) -> bool:
        """Whether processes compare, in every call, the inputs that each has for itself and all are
        taken to have (yes; `SHARDIR_CHECK_REPLICATED_INPUTS`).

        Without it they compare them before the first run of a program only, and later calls with
        other numbers in one process give wrong results without an error.
        """
        return bool(_read("check_replicated_inputs"))

    @property
    def uneven(self) -> str | None:
        """What becomes of dimensions that do not divide (none; `SHARDIR_UNEVEN`).

        `None`: an error for arguments and results, padding inside of programs. `"pad"`: padding
        everywhere but in `shard_map`, where functions would see it and calls ask for it.
        `"replicate"` and `"error"` are for the inside: cut as far as it divides, or refuse to.
        """
        chosen = _read("uneven")
        return None if chosen is None else str(chosen)

    @property
    def on_fallback(self) -> str:
        """What becomes of operations that are cut but have no loops (`SHARDIR_ON_FALLBACK`).

        `"replicate"`, the default: every device runs all of them, and the program says what that
        receives. `"error"`: such a program is refused.
        """
        return str(_read("on_fallback"))

    @property
    def shardy_exact(self) -> bool:
        """Whether programs move their values as Shardy does, instead of sending as little as can
        be (no; `SHARDIR_SHARDY_EXACT`)."""
        return bool(_read("shardy_exact"))

    def __getattr__(self, name: str) -> object:
        return _read(find_setting(name).name)

    def __setattr__(self, name: str, value: object) -> None:
        find_setting(name)
        raise UnknownSetting(
            f"config.{name} cannot be assigned; write config.update({name!r}, {value!r})"
        )

    def update(self, name: str, value: object) -> None:
        """Change a setting for the block this runs in, or outside of any block for good."""
        setting = find_setting(name)
        kept = setting.clean(value, f"the setting {setting.name}")
        changed = _Scope({**_scope().chosen, setting.name: kept})
        if _block.get() is None:
            _process[:] = [changed]
        else:
            _block.set(changed)

    def __call__(self, **settings: object) -> AbstractContextManager[None]:
        """A block in which `settings` hold, and changes by `update` stay inside."""
        found = [(find_setting(name), value) for name, value in settings.items()]
        kept = {s.name: s.clean(value, f"the setting {s.name}") for s, value in found}
        return _enter(kept)

    def snapshot(self) -> tuple[tuple[str, object], ...]:
        """Every setting with its value: part of the key of whatever a trace is cached by."""
        scope = _scope()
        if scope.snapshot is None:
            scope.snapshot = tuple((name, scope.read(name)) for name in SETTINGS)
        return scope.snapshot

    def __repr__(self) -> str:
        return f"config({', '.join(f'{name}={value!r}' for name, value in self.snapshot())})"


@contextmanager
def _enter(settings: Mapping[str, object]) -> Iterator[None]:
    token = _block.set(_Scope({**_scope().chosen, **settings}))
    try:
        yield
    finally:
        _block.reset(token)


config = Config()


def set_cpu_devices(count: int) -> None:
    """Let there be `count` virtual CPU devices from now on. Arrays in being keep theirs."""
    config.update("num_cpu_devices", count)


def cpu_devices(count: int) -> AbstractContextManager[None]:
    """A block with `count` virtual CPU devices."""
    return config(num_cpu_devices=count)


def enable_x64(enabled: bool = True) -> AbstractContextManager[None]:
    """A block in which numbers keep 64 bits (or, with `False`, do not)."""
    return config(enable_x64=enabled)


def threefry_partitionable(enabled: bool = True) -> AbstractContextManager[None]:
    """A block in which each random bit depends on its own position alone (or not)."""
    return config(threefry_partitionable=enabled)


def dump_dir(folder: str | os.PathLike[str] | None) -> AbstractContextManager[None]:
    """A block whose programs are written to `folder` after every pass."""
    return config(dump_dir=folder)


def verify(enabled: bool = True) -> AbstractContextManager[None]:
    """A block in which every pass is checked on numbers (or not)."""
    return config(verify=enabled)


def gather(enabled: bool = True) -> AbstractContextManager[None]:
    """A block in which reading an array that several processes hold gathers it (or not)."""
    return config(gather=enabled)


def uneven(mode: str | None) -> AbstractContextManager[None]:
    """A block in which dimensions that do not divide are treated as `config.uneven` says."""
    return config(uneven=mode)


def uneven_mode(chosen: str | None, word: str) -> str | None:
    """What a keyword `uneven` of `word` means: what it says, or else the setting."""
    if chosen is None:
        return config.uneven
    return str(SETTINGS["uneven"].clean(chosen, f"uneven of {word}"))
