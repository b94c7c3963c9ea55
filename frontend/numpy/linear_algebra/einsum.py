"""Sums of products in Einstein notation.

Two operands are one `dot`; more operands are multiplied in pairs, in the greedy order that
minimizes the size of the intermediate result minus the sizes of the pair.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from math import prod
from string import ascii_lowercase, ascii_uppercase
from types import EllipsisType
from typing import Any

import numpy as np

from shardir.errors import count_noun, state_count
from shardir.frontend.argument_checks import is_one_of
from shardir.frontend.argument_errors import FOREIGN_ERRORS, with_argument_errors
from shardir.frontend.arrays.array_types import DTypeLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.linear_algebra.contraction import PRODUCT_STATIC_ARGNAMES, contract
from shardir.frontend.numpy.linear_algebra.diagonals import diagonal_in_place
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import as_bool, check_no_out
from shardir.frontend.numpy.tracer_helpers.product_precision import check_precision
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.shardings.resharding import call_with_out_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import convert, promote, reshape
from shardir.frontend.tracing.promotion import dtype_of, is_wider
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer

MAX_OPTIMAL_OPERANDS = 4
"""The maximum number of operands for which `einsum_path` compares all orders by default."""

MAX_INTERMEDIATE_ELEMENTS = 2**62
"""A limit of the elements of an intermediate result that no contraction reaches."""


@with_argument_errors
def einsum(
    subscripts: object,
    /,
    *operands: object,
    out: None = None,
    optimize: object = "auto",
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return products of elements, summed over the letters that the output lacks: `"bi,ih->bh"`.

    `...` denotes axes that broadcast; a repeated letter in one operand denotes its diagonal.
    Without `->` the output has the letters that occur once, in alphabetical order. Alternatively,
    operands alternate with lists of integers for their axes. `optimize` is accepted for
    compatibility and ignored: the order of pairs is always greedy. `precision` is that of `matmul`.
    Raise `ShapeError` if sizes disagree, and `ArgumentError` for invalid subscripts.
    """
    check_precision(precision)
    check_no_out("einsum", out)
    text, arrays = _as_text_subscripts(subscripts, operands)
    return call_with_out_sharding(
        out_sharding,
        _einsum,
        text,
        *arrays,
        preferred_element_type=preferred_element_type,
        precision=precision,
    )


@with_argument_errors
def einsum_path(
    subscripts: object,
    /,
    *operands: PyTree,
    optimize: bool | str | Sequence[tuple[int, ...]] = "auto",
) -> tuple[list[tuple[int, ...]], str]:
    """Return an order in which to multiply the operands, and NumPy's report on it.

    The order is a list of the positions of the operands that are multiplied, as in JAX. `optimize`
    is "optimal" (or True), "greedy", False for the order of the operands, a list of positions, or
    "auto": optimal for at most four operands, and greedy for more. Raise `ArgumentError` for
    others.
    """
    text, arrays = _as_text_subscripts(subscripts, operands)
    shapes = [
        abstract_of(x, f"operand {i} of einsum_path").type.shape for i, x in enumerate(arrays)
    ]
    terms, _ = _parse_subscripts(text, list(map(len, shapes)))
    _letter_sizes(text, terms, shapes)
    placeholders = [np.broadcast_to(0.0, shape) for shape in shapes]
    form = _as_numpy_path_form(optimize, len(terms))
    is_list = isinstance(optimize, (bool, list, tuple))
    if not is_list and not is_one_of(optimize, ("auto", "optimal", "greedy")):
        # NumPy accepts any text for two operands.
        raise ArgumentError(
            with_location(
                f"einsum_path does not support the order {brief(optimize)}; it is 'auto', "
                "'optimal' or 'greedy'"
            )
        )
    try:
        order, report = np.einsum_path(text, *placeholders, optimize=form)
    except (*FOREIGN_ERRORS, KeyError) as error:
        raise ArgumentError(
            with_location(f"einsum_path does not support the order {brief(optimize)}: {error}")
        ) from None
    return order[1:], report


def _as_numpy_path_form(optimize: object, operand_count: int) -> Any:
    """Return the argument `optimize` of NumPy's `einsum_path` for that of JAX's."""
    if optimize is False:
        return ["einsum_path", *[(0, 1)] * (operand_count - 1)]
    if isinstance(optimize, list) and all(isinstance(each, tuple) for each in optimize):
        return ["einsum_path", *optimize]
    if isinstance(optimize, str) and optimize == "auto":
        optimize = operand_count <= MAX_OPTIMAL_OPERANDS or "greedy"
    if optimize is True or (isinstance(optimize, str) and optimize == "optimal"):
        # Without a limit, NumPy makes no intermediate result larger than the operands.
        return ("optimal", MAX_INTERMEDIATE_ELEMENTS)
    return optimize


def _as_text_subscripts(
    subscripts: object, operands: tuple[PyTree, ...]
) -> tuple[str, tuple[PyTree, ...]]:
    """Return the subscripts as text, also for operands that alternate with lists of integers."""
    if isinstance(subscripts, str):
        if not operands:
            raise _subscripts_error(subscripts, "has no operands")
        return subscripts.replace(" ", ""), operands
    items = (subscripts, *operands)
    if len(items) < 2 or not all(isinstance(each, (list, tuple)) for each in items[1::2]):
        raise ArgumentError(
            with_location(
                "einsum takes subscripts as text, or arrays that alternate with lists of axes"
            )
        )
    arrays, lists = items[: len(items) // 2 * 2 : 2], items[1::2]
    tail = items[-1:] if len(items) % 2 else ()
    labels = _axis_labels((*lists, *tail))
    letters = ascii_lowercase if len(labels) <= 26 else ascii_uppercase + ascii_lowercase
    if len(labels) > len(letters):
        raise ArgumentError(with_location(f"einsum has letters for 52 axes, not for {len(labels)}"))
    spelling = dict(zip(labels, letters, strict=False))

    def term(numbers: Sequence[int | EllipsisType]) -> str:
        return "".join("..." if n is Ellipsis else spelling[n] for n in numbers)

    text = ",".join(map(term, lists))
    return (f"{text}->{term(tail[0])}" if tail else text), arrays


def _axis_labels(lists: Sequence[Sequence[int | EllipsisType]]) -> list[int]:
    """Return all axis labels in order; raise `ArgumentError` if they cannot be ordered."""
    try:
        return sorted({n for each in lists for n in each if n is not Ellipsis})
    except TypeError:
        described = ", ".join(map(brief, lists))
        raise ArgumentError(
            with_location(f"einsum takes lists of integers as axes, got {described}")
        ) from None


@public(static=PRODUCT_STATIC_ARGNAMES)
def _einsum(
    subscripts: str,
    *operands: Tracer,
    preferred_element_type: DTypeLike | None = None,
    precision: object = None,
) -> Tracer:
    arrays = promote(*operands)
    is_bool = arrays[0].value.type.dtype == "bool"
    if is_bool:
        # With another element type, the result counts products, as in `contract`.
        stated = "bool" if preferred_element_type is None else dtype_of(preferred_element_type)
        is_bool = stated == "bool"
        arrays = tuple(convert(x, "i32" if is_bool else stated) for x in arrays)
        if is_bool:
            preferred_element_type = None
    terms, output = _parse_subscripts(subscripts, [x.ndim for x in arrays])
    sizes = _letter_sizes(subscripts, terms, [x.shape for x in arrays])
    pairs = [_take_diagonals(x, term, sizes) for x, term in zip(arrays, terms, strict=True)]
    wider = None
    if preferred_element_type is not None:
        stated = dtype_of(preferred_element_type)
        wider = stated if is_wider(stated, arrays[0].value.type.dtype) else None
    while len(pairs) > 1:
        i, j = _cheapest_pair([term for _, term in pairs], output, sizes)
        (y, right), (x, left) = pairs.pop(j), pairs.pop(i)
        needed_letters = "".join([output, *(term for _, term in pairs)])
        x, left = _sum_unused_letters(x, left, needed_letters + right, wider)
        y, right = _sum_unused_letters(y, right, needed_letters + left, wider)
        x, y = promote(x, y)
        order = _intermediate_letters(left, right, needed_letters) if pairs else output
        dtype = preferred_element_type if wider or not pairs else None
        pairs.insert(i, (contract(x, y, f"{left},{right}->{order}", dtype, precision), order))
    result, term = _sum_unused_letters(*pairs[0], output, wider)
    if term != output:
        perm = tuple(map(term.index, output))
        result = emit("transpose", result, perm=perm, weak=result.weak_type)
    if is_bool:
        result = as_bool(result)
    if preferred_element_type is None:
        return result
    return convert(result, dtype_of(preferred_element_type))


def _parse_subscripts(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the output; `...` becomes unused letters."""
    inputs, arrow, output = subscripts.partition("->")
    terms = inputs.split(",")
    used = inputs.replace("...", "").replace(",", "")
    if len(terms) != len(ranks):
        raise _subscripts_error(
            subscripts,
            f"names {count_noun(len(terms), 'operand')}, but {state_count(len(ranks), 'operand')}",
        )
    for term in (*terms, output):
        letters = term.replace("...", "", 1)
        if letters and not (letters.isalpha() and letters.isascii()):
            raise _subscripts_error(subscripts, f"has {term!r}, which is not made of letters")
    free = [letter for letter in ascii_uppercase + ascii_lowercase if letter not in used]
    named = [len(term.replace("...", "")) for term in terms]
    for term, count, rank in zip(terms, named, ranks, strict=True):
        if count > rank or (count < rank and "..." not in term):
            raise _subscripts_error(subscripts, f"has {term!r} for an operand of rank {rank}")
    unnamed = max(rank - n for rank, n in zip(ranks, named, strict=True))
    ellipsis_letters = "".join(free[:unnamed])
    if not arrow:
        counts = Counter(used)
        output = "..." + "".join(sorted(c for c in counts if counts[c] == 1))
    # As in JAX, the axes of an ellipsis that is not after '->' are summed.
    output = output.replace("...", ellipsis_letters)
    for letter in output:
        if letter not in used + ellipsis_letters:
            raise _subscripts_error(subscripts, f"has {letter!r} only after '->'")
        if output.count(letter) > 1:
            raise _subscripts_error(subscripts, f"has {letter!r} twice after '->'")
    filled = [
        term.replace("...", ellipsis_letters[unnamed - rank + n :])
        for term, n, rank in zip(terms, named, ranks, strict=True)
    ]
    return filled, output


def _subscripts_error(subscripts: str, why: str) -> ArgumentError:
    return ArgumentError(with_location(f"einsum subscripts {subscripts!r}: {why}"))


def _letter_sizes(
    subscripts: str, terms: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> dict[str, int]:
    """Return the size of each letter; size 1 broadcasts. Raise `ShapeError` if sizes disagree.

    As in NumPy, size 1 does not broadcast along a diagonal, whose sizes are equal.
    """
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        own: dict[str, int] = {}
        for letter, size in zip(term, shape, strict=True):
            for known, broadcasts in ((own, False), (sizes, True)):
                other = known.setdefault(letter, size)
                if size != other and not (broadcasts and 1 in (size, other)):
                    described = " and ".join(map(str, shapes))
                    raise ShapeError(
                        with_location(
                            f"einsum {subscripts!r} of shapes {described}: {letter!r} is both "
                            f"{other} and {size}"
                        )
                    )
            if sizes[letter] == 1:
                sizes[letter] = size
    return sizes


def _take_diagonals(x: Tracer, term: str, sizes: dict[str, int]) -> tuple[Tracer, str]:
    """Return an operand with each letter once, without broadcast dimensions."""
    kept = [(c, n) for c, n in zip(term, x.shape, strict=True) if n == sizes[c]]
    x, term = reshape(x, [n for _, n in kept]), "".join(c for c, _ in kept)
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first, second = term.index(letter), term.rindex(letter)
            x = diagonal_in_place(x, first, second)
            term = term[:second] + term[second + 1 :]
    return x, term


def _sum_unused_letters(
    x: Tracer, term: str, needed_letters: str, wider: str | None
) -> tuple[Tracer, str]:
    """Sum an operand over the letters that neither the output nor other operands have."""
    dims = tuple(d for d, letter in enumerate(term) if letter not in needed_letters)
    if not dims:
        return x, term
    if wider is not None:
        x = convert(x, wider)
    summed: Tracer = emit("sum", x, dims=dims, weak=x.weak_type)
    return summed, "".join(letter for letter in term if letter in needed_letters)


def _intermediate_letters(left: str, right: str, needed_letters: str) -> str:
    """Return the letters of an intermediate result."""
    return "".join(dict.fromkeys(letter for letter in left + right if letter in needed_letters))


def _cheapest_pair(terms: Sequence[str], output: str, sizes: dict[str, int]) -> tuple[int, int]:
    """Return the indices of the two operands to multiply next."""

    def size(letters: str) -> int:
        return prod(sizes[letter] for letter in letters)

    def cost(pair: tuple[int, int]) -> int:
        i, j = pair
        needed_letters = "".join([output, *(t for k, t in enumerate(terms) if k not in pair)])
        return (
            size(_intermediate_letters(terms[i], terms[j], needed_letters))
            - size(terms[i])
            - size(terms[j])
        )

    return min(combinations(range(len(terms)), 2), key=cost)
