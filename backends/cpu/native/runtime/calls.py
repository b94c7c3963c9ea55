"""Tiered compilation of the code that dispatches Python calls to programs.

The first call of a process waits for the launch code, which is therefore compiled at -O0. After
enough calls, another thread compiles the same code at -O2 together with the call cache, and Python
functions over the first code are redirected to the second.
"""

import sys
import threading
from contextlib import suppress
from threading import Thread

from shardir.backends.cpu.native.llvm.compiler import Library, is_on_disk, known, named
from shardir.backends.cpu.native.llvm.text import Module
from shardir.backends.cpu.native.llvm.threads import started
from shardir.backends.cpu.native.runtime import (
    answering,
    blocks,
    entering,
    flight,
    gathering,
    launching,
    numbers,
    readiness,
    reading,
)
from shardir.backends.cpu.native.runtime.entry import replace
from shardir.backends.cpu.native.runtime.python import declare_python, python_addresses
from shardir.backends.cpu.native.runtime.workers import pool
from shardir.backends.forking import held_by_forks

ENOUGH = 16
"""The call cache is compiled after this many calls that it could run."""

_LAUNCHING = ("launch", "gather", "retire", "hand")
_METHODS = ("launch", "gather", "hand")
"""The exports that Python functions wrap."""
_ANSWERING = ("answer", "describe", "wait")
_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""Reference counting differs between versions of Python."""

_launching: list[Library] = []
_answering: list[Library] = []
_asked = [0]
_making = threading.RLock()
"""Held while code is compiled."""


def are_on_disk() -> bool:
    """Return whether `launches` will load its code from disk."""
    return any(is_on_disk(name) for name in (_name(), _hasty_name()))


def launches() -> Library:
    """Return the code that launches programs and flattens arguments."""
    with _making:
        if not _launching:
            _find()
        if not _launching:
            name = _hasty_name()
            _launching.append(named(name, _launch_text, _LAUNCHING, _imports(), unoptimized=True))
        return _launching[0]


def calls() -> Library:
    """Return the optimized code with the call cache; compile it if necessary."""
    with _making:
        if not _answering:
            _find()
        if not _answering:
            _keep(named(_name(), _text, (*_LAUNCHING, *_ANSWERING), _imports()))
        return _answering[0]


def calls_soon() -> Library | None:
    """Return the code of `calls` if it is compiled or on disk, else `None`.

    The call that reaches the limit starts to compile it on another thread; no call waits.
    """
    if _answering:
        return _answering[0]
    _asked[0] += 1
    if _asked[0] == ENOUGH:
        # An error is raised again by `calls`.
        started(Thread(target=_quietly, name="shardir-prepare"))
    return None


def answers_calls() -> bool:
    """Return whether the native call cache is available."""
    return bool(_answering)


def _quietly() -> None:
    with suppress(Exception):
        calls()


def _find() -> None:
    """Load the optimized code from disk."""
    if found := known(_name(), (*_LAUNCHING, *_ANSWERING), _imports()):
        _keep(found)


def _keep(good: Library) -> None:
    if _launching:
        for name in _METHODS:
            replace(_launching[0][name], good[name])
    else:
        _launching.append(good)
    _answering.append(good)


def _name() -> str:
    return f"calls {_PYTHON}"


def _hasty_name() -> str:
    return f"launches {_PYTHON}"


def _imports() -> dict[str, int]:
    return python_addresses() | {"run": pool().code["run"]}


def _launch_text() -> str:
    module = Module()
    _define_launches(module)
    return module.text()


def _text() -> str:
    module = Module()
    _define_launches(module)
    reading.define_read(module)
    answering.define_answer(module)
    readiness.define_wait(module)
    return module.text()


def _define_launches(module: Module) -> None:
    declare_python(module)
    module.declare("run", "i1", ["ptr", "ptr"])
    blocks.define_blocks(module)
    numbers.define_numbers(module)
    entering.define_enter(module)
    flight.define_flight(module)
    launching.define_launch(module)
    gathering.define_gather(module)


def _after_fork_in_child() -> None:
    _making.release()
    _asked[0] = min(_asked[0], ENOUGH - 1)


held_by_forks(_making.acquire, _making.release, _after_fork_in_child)
