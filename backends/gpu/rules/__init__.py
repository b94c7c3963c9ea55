"""The rules, one module per family; to import this package registers them all."""

from shardir.backends.gpu.rules import (
    annotate as annotate,
    arithmetic as arithmetic,
    bits as bits,
    collective as collective,
    contraction as contraction,
    control as control,
    create as create,
    decompositions as decompositions,
    functions as functions,
    groups as groups,
    index as index,
    order as order,
    random as random,
    reduce as reduce,
    shape as shape,
    slicing as slicing,
    window as window,
)
