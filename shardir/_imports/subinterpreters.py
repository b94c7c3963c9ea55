"""Check that the library is imported in the main interpreter of a process."""

from importlib import import_module

from shardir.errors import ShardirError


class SubinterpreterError(ShardirError, ImportError):
    """The library was imported in a subinterpreter."""


def refuse_subinterpreters() -> None:
    """Raise `SubinterpreterError` in any interpreter except the main one.

    Required extension modules (NumPy, ml_dtypes, optree) do not support subinterpreters: they would
    deadlock on the lock of the main interpreter.
    """
    # The first name exists since Python 3.13, the second before.
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise SubinterpreterError(
                "shardir can be imported only in the main interpreter of a process, because NumPy "
                "does not support subinterpreters; use threads, or processes "
                "(concurrent.futures.ProcessPoolExecutor)"
            )
        return
