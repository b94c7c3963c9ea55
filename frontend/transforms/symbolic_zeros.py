"""Helpers of rules with `symbolic_zeros`: plain arguments, and zeros for arguments."""

import numpy as np

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.creation import filling
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.transforms.custom_rules import symbolic_zero
from shardir.frontend.transforms.custom_vjp import CustomVJPPrimal
from shardir.frontend.transforms.differentiated_arguments import FLOAT0


@with_argument_errors
def custom_vjp_primal_tree_values(tree_of_primals: PyTree) -> PyTree:
    """Return the arguments of a forward rule with `symbolic_zeros` as plain values.

    Raises `ArgumentError` if a leaf is not a `CustomVJPPrimal`.
    """

    def value(leaf: object) -> PyTree:
        if not isinstance(leaf, CustomVJPPrimal):
            raise ArgumentError(
                with_location(
                    "custom_vjp_primal_tree_values takes the arguments of a forward rule with "
                    f"symbolic_zeros, whose leaves are CustomVJPPrimal, got {brief(leaf)}"
                )
            )
        return leaf.value

    return tree.map(value, tree_of_primals, is_leaf=lambda x: isinstance(x, CustomVJPPrimal))


@with_argument_errors
def zero_from_primal(val: PyTree, symbolic_zeros: bool = False) -> PyTree:
    """Return a zero tangent for each leaf of `val`: a `SymbolicZero` with `symbolic_zeros`, else an
    array. Tangents of integers have the empty type `float0`.
    """

    def zero(leaf: object) -> PyTree:
        found = symbolic_zero(abstract_of(leaf))
        if symbolic_zeros:
            return found
        if found.dtype == FLOAT0:
            return np.zeros(found.shape, FLOAT0)
        return filling.zeros(found.shape, found.dtype)

    return tree.map(zero, val)
