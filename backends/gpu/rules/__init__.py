"""Lowering rules of all operations to torch, one module per family.

Input: an operation and a `FunctionWriter`. Output: an expression or lines. Importing the
package registers all rules in `lowering.RULES`. Start with `arithmetic.py`; `groups.py` lowers
fused groups.
"""

from shardir.backends.gpu.rules import (
    arithmetic as arithmetic,
    collective as collective,
    contraction as contraction,
    control as control,
    create as create,
    decompositions as decompositions,
    functions as functions,
    groups as groups,
    index as index,
    pipelines as pipelines,
    random as random,
    reduce as reduce,
    shape as shape,
    slicing as slicing,
    window as window,
)
