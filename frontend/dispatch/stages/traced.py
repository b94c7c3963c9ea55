"""The stage between a function and its lowered program, and the types of stages."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, final, runtime_checkable

from shardir.frontend.absent_members import WithAbsentMembers
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.dispatch.stages.stages import Lowered
from shardir.frontend.dispatch.stages.typed_module import TypedModule
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.ir.module import Module

CompilerOptions: TypeAlias = Mapping[str, str | bool]
"""Options of compilers by name."""


@with_method_errors
@final
class Traced(WithAbsentMembers):
    """A function traced for given arguments, the result of `jit(f).trace(*args)`."""

    def __init__(self, lowered: Lowered, fun_name: str) -> None:
        self._lowered = lowered
        self.fun_name = fun_name

    @property
    def module(self) -> Module:
        """The traced program."""
        return self._lowered.module

    @property
    def jaxpr(self) -> TypedModule:
        """The traced program, as `make_ir` returns it (the name in JAX)."""
        return self._lowered.typed_module

    @property
    def in_tree(self) -> tree.PyTreeDef:
        """The structure of the arguments, (positional, named)."""
        return self._lowered.in_tree

    @property
    def out_tree(self) -> tree.PyTreeDef:
        """The structure of the result."""
        return self._lowered.out_tree

    @property
    def out_info(self) -> PyTree:
        """The pytree of results with a `ShapeDtypeStruct` for each array."""
        return self._lowered.out_info

    @property
    def in_avals(self) -> PyTree:
        """The pytree of arguments, (positional, named), with the type of each array."""
        return self._lowered.in_avals

    @property
    def out_avals(self) -> PyTree:
        """The pytree of results with the type of each array."""
        return self._lowered.out_avals

    @property
    def args_info(self) -> PyTree:
        """The pytree of arguments, (positional, named), with an `ArgInfo` for each array."""
        return self._lowered.args_info

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The positions of donated arguments among the leaves of all arguments."""
        return self._lowered.donate_argnums

    def lower(self, *, lowering_platforms: Sequence[str] | None = None) -> Lowered:
        """Return the lowered program.

        `lowering_platforms` has no effect: a lowered program does not depend on the platform, and
        `compile` compiles it for the devices of its arguments.
        """
        return self._lowered

    def __repr__(self) -> str:
        return f"<trace of {self.fun_name}>"


@runtime_checkable
class Wrapped(Protocol):
    """A function that `jit` or `pmap` returned: it can be called, traced and lowered."""

    def __call__(self, *args: PyTree, **options: PyTree) -> PyTree:
        """Call the function."""
        ...

    def trace(self, *args: PyTree, **options: PyTree) -> Traced:
        """Trace the function for these arguments."""
        ...

    def lower(self, *args: PyTree, **options: PyTree) -> Lowered:
        """Trace and lower the function for these arguments."""
        ...
