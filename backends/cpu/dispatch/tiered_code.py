"""Tiered compilation of the code that dispatches Python calls to programs.

The first call of a process waits for the launch code, which is therefore compiled at -O0. After
enough calls, another thread compiles the same code at -O2 together with the call cache, and Python
functions over the first code are redirected to the second.
"""

import sys
import threading
from contextlib import suppress
from threading import Thread

from shardir.backends.cpu.codegen.compiler import (
    NativeLibrary,
    compile_cached,
    is_on_disk,
    load_cached,
)
from shardir.backends.cpu.codegen.llvm_text import LLVMModule
from shardir.backends.cpu.codegen.llvm_threads import try_start_thread
from shardir.backends.cpu.dispatch import (
    array_import,
    block_until_ready,
    call_cache,
    flatten_arguments,
    invoke,
    key_builder,
    launch,
    scalar_arguments,
    small_blocks,
)
from shardir.backends.cpu.dispatch.entry_point import replace_code
from shardir.backends.cpu.dispatch.python_api import declare_python, python_addresses
from shardir.backends.cpu.threads.workers import worker_pool
from shardir.backends.fork_handlers import register_fork_lock

TIER2_CALL_COUNT = 16
"""The call cache is compiled after this many calls that it could run."""

_LAUNCH_EXPORTS = ("launch", "gather", "retire", "hand")
_PYTHON_FUNCTIONS = ("launch", "gather", "hand")
"""The exports that Python functions wrap."""
_CACHE_EXPORTS = ("answer", "describe", "wait")
_PYTHON_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""Reference counting differs between versions of Python."""

_launch_code: list[NativeLibrary] = []
_cache_code: list[NativeLibrary] = []
_request_count = [0]
_compile_lock = threading.RLock()
"""Held while code is compiled."""


def are_on_disk() -> bool:
    """Return whether `launches` will load its code from disk."""
    return any(is_on_disk(name) for name in (_optimized_name(), _unoptimized_name()))


def launch_code() -> NativeLibrary:
    """Return the code that launches programs and flattens arguments."""
    with _compile_lock:
        if not _launch_code:
            _load_from_disk()
        if not _launch_code:
            name = _unoptimized_name()
            _launch_code.append(
                compile_cached(name, _launch_text, _LAUNCH_EXPORTS, _imports(), unoptimized=True)
            )
        return _launch_code[0]


def call_cache_code() -> NativeLibrary:
    """Return the optimized code with the call cache; compile it if necessary."""
    with _compile_lock:
        if not _cache_code:
            _load_from_disk()
        if not _cache_code:
            _install(
                compile_cached(
                    _optimized_name(), _text, (*_LAUNCH_EXPORTS, *_CACHE_EXPORTS), _imports()
                )
            )
        return _cache_code[0]


def call_cache_code_if_ready() -> NativeLibrary | None:
    """Return the code of `calls` if it is compiled or on disk, else `None`.

    The call that reaches the limit starts to compile it on another thread; no call waits.
    """
    if _cache_code:
        return _cache_code[0]
    _request_count[0] += 1
    if _request_count[0] == TIER2_CALL_COUNT:
        # An error is raised again by `calls`.
        try_start_thread(Thread(target=_compile_in_background, name="shardir-prepare"))
    return None


def has_call_cache() -> bool:
    """Return whether the native call cache is available."""
    return bool(_cache_code)


def _compile_in_background() -> None:
    with suppress(Exception):
        call_cache_code()


def _load_from_disk() -> None:
    """Load the optimized code from disk."""
    if found := load_cached(_optimized_name(), (*_LAUNCH_EXPORTS, *_CACHE_EXPORTS), _imports()):
        _install(found)


def _install(good: NativeLibrary) -> None:
    if _launch_code:
        for name in _PYTHON_FUNCTIONS:
            replace_code(_launch_code[0][name], good[name])
    else:
        _launch_code.append(good)
    _cache_code.append(good)


def _optimized_name() -> str:
    return f"calls {_PYTHON_VERSION}"


def _unoptimized_name() -> str:
    return f"launches {_PYTHON_VERSION}"


def _imports() -> dict[str, int]:
    return python_addresses() | {"run": worker_pool().code["run"]}


def _launch_text() -> str:
    module = LLVMModule()
    _define_launches(module)
    return module.text()


def _text() -> str:
    module = LLVMModule()
    _define_launches(module)
    key_builder.define_key_builder(module)
    call_cache.define_cached_call(module)
    block_until_ready.define_block_until_ready(module)
    return module.text()


def _define_launches(module: LLVMModule) -> None:
    declare_python(module)
    module.declare("run", "i1", ["ptr", "ptr"])
    small_blocks.define_blocks(module)
    scalar_arguments.define_write_number(module)
    array_import.define_array_import(module)
    invoke.define_invoke(module)
    launch.define_launch(module)
    flatten_arguments.define_flatten(module)


def _after_fork_in_child() -> None:
    _compile_lock.release()
    _request_count[0] = min(_request_count[0], TIER2_CALL_COUNT - 1)


register_fork_lock(_compile_lock.acquire, _compile_lock.release, _after_fork_in_child)
