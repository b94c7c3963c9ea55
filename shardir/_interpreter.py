"""In which interpreter of a process the library may be imported."""

from importlib import import_module

from shardir.errors import ShardirError


class SubinterpreterError(ShardirError, ImportError):
    """The library was imported in a subinterpreter."""


def refuse_subinterpreters() -> None:
    """Raise `SubinterpreterError` in any interpreter but that which the process began with.

    Extensions that the library needs (NumPy, ml_dtypes, optree) do not support others: they wait
    for ever for the lock of the main interpreter.
    """
    for name in ("_interpreters", "_xxsubinterpreters"):  # Since Python 3.13, and before.
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise SubinterpreterError(
                "shardir can be imported in the main interpreter of a process alone, because NumPy "
                "does not support subinterpreters; use threads, or processes "
                "(concurrent.futures.ProcessPoolExecutor)"
            )
        return
