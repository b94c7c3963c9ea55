"""Imports of names that JAX has and shardir lacks: the error states the reason.

`from shardir import ref` looks up an attribute first and then imports the module `shardir.ref`;
Python discards the message of the first error, not that of the second one.
"""

import importlib.util
import sys
from typing import final

from shardir._imports.absent_names import absence_reason
from shardir._imports.lazy_names import missing_module


@final
class AbsentNameFinder:
    """Raises `MissingModule` for absent names; a finder of `sys.meta_path`, the last one."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise `MissingModule` with the reason for an absent name below `shardir`.

        For `importlib.util.find_spec`, which tests whether a module exists, return `None`.
        """
        # The frames are this one, that of the import system, and that of its caller.
        is_question = sys._getframe(2).f_code is importlib.util.find_spec.__code__
        if name.startswith("shardir.") and not is_question and absence_reason(name) is not None:
            raise missing_module(name)


def install_absent_name_finder() -> None:
    """Add the finder, unless `shardir` is imported again."""
    if AbsentNameFinder not in sys.meta_path:
        sys.meta_path.append(AbsentNameFinder)
