"""Names of types that Python's type system cannot state: pytrees and functions of pytrees."""

from collections.abc import Callable
from typing import Any, TypeAlias

PyTree: TypeAlias = Any
"""A nested container of leaves, or one leaf (see `shardir.frontend.pytree.tree`)."""

UserFunction: TypeAlias = Callable[..., PyTree]
"""A function of the user, whose parameters and results are pytrees."""
