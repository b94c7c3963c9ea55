"""Checks of running programs, whose failures are values."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.transforms.checkify": (
        "Error",
        "ErrorCategory",
        "all_checks",
        "automatic_checks",
        "check",
        "check_error",
        "checkify",
        "debug_check",
        "div_checks",
        "float_checks",
        "index_checks",
        "init_error",
        "nan_checks",
        "user_checks",
    ),
    "shardir.ir.check": ("JaxRuntimeError",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.transforms.checkify import (
        Error as Error,
        ErrorCategory as ErrorCategory,
        all_checks as all_checks,
        automatic_checks as automatic_checks,
        check as check,
        check_error as check_error,
        checkify as checkify,
        debug_check as debug_check,
        div_checks as div_checks,
        float_checks as float_checks,
        index_checks as index_checks,
        init_error as init_error,
        nan_checks as nan_checks,
        user_checks as user_checks,
    )
    from shardir.ir.check import JaxRuntimeError as JaxRuntimeError
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
