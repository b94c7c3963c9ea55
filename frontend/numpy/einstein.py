"""Sums of products in Einstein's notation.

Two operands are one `dot`; more are multiplied in pairs, each time the pair that makes the
smallest intermediate result for what it takes away.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from math import prod
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np

from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.locations import point
from shardir.frontend.numpy.contraction import contract
from shardir.frontend.numpy.diagonals import diagonal_of
from shardir.frontend.numpy.pointwise import truth
from shardir.frontend.operands import abstract_of, convert, promote, reshape
from shardir.frontend.promotion import dtype_of
from shardir.frontend.quoting import brief
from shardir.frontend.refusals import FOREIGN
from shardir.frontend.resharding import laid_out
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer


def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: None = None,
    optimize: Any = "auto",
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Products of elements, summed over the letters that the output lacks: `"bi,ih->bh"`.

    `...` stands for axes that broadcast, a letter twice in one operand for its diagonal; without
    `->` the output has the letters that occur once, in alphabetical order. Operands may instead
    alternate with lists of numbers for their axes. `optimize` and `precision` are accepted for
    compatibility and ignored: pairs are always chosen greedily. Raises `ShapeError` where sizes
    disagree, `ArgumentError` for subscripts that mean nothing.
    """
    if out is not None:
        raise ArgumentError(point("einsum takes no out=; arrays never change"))
    text, arrays = _spelled(subscripts, operands)
    made = _einsum(text, *arrays, preferred_element_type=preferred_element_type)
    return laid_out(made, out_sharding)


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "greedy") -> Any:
    """The order in which NumPy would multiply the operands, and its report."""
    text, arrays = _spelled(subscripts, operands)
    shapes = [
        abstract_of(x, f"operand {i} of einsum_path").type.shape for i, x in enumerate(arrays)
    ]
    terms, _ = _parsed(text, list(map(len, shapes)))
    _sizes(text, terms, shapes)
    stand_ins = [np.broadcast_to(0.0, shape) for shape in shapes]
    try:
        return np.einsum_path(text, *stand_ins, optimize=optimize)
    except (*FOREIGN, KeyError) as error:
        raise ArgumentError(
            point(f"einsum_path knows no order {brief(optimize)}: {error}")
        ) from None


def _spelled(subscripts: Any, operands: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Subscripts as text: operands that alternate with lists of numbers are spelled out."""
    if isinstance(subscripts, str):
        if not operands:
            raise _meaningless(subscripts, "has no operands")
        return subscripts.replace(" ", ""), operands
    items = (subscripts, *operands)
    if len(items) < 2 or not all(isinstance(each, (list, tuple)) for each in items[1::2]):
        raise ArgumentError(
            point("einsum takes subscripts as text, or arrays that alternate with lists of axes")
        )
    arrays, lists = items[: len(items) // 2 * 2 : 2], items[1::2]
    tail = items[-1:] if len(items) % 2 else ()
    labels = _labels((*lists, *tail))
    letters = ascii_lowercase if len(labels) <= 26 else ascii_uppercase + ascii_lowercase
    if len(labels) > len(letters):
        raise ArgumentError(point(f"einsum has letters for 52 axes, not for {len(labels)}"))
    spelling = dict(zip(labels, letters, strict=False))

    def term(numbers: Sequence[Any]) -> str:
        return "".join("..." if n is Ellipsis else spelling[n] for n in numbers)

    text = ",".join(map(term, lists))
    return (f"{text}->{term(tail[0])}" if tail else text), arrays


def _labels(lists: Sequence[Any]) -> list[Any]:
    """All numbers of axes in order; raises `ArgumentError` for what cannot be told apart."""
    try:
        return sorted({n for each in lists for n in each if n is not Ellipsis})
    except TypeError:
        told = ", ".join(map(brief, lists))
        raise ArgumentError(
            point(f"einsum takes lists of whole numbers as axes, got {told}")
        ) from None


@public(static=("preferred_element_type",))
def _einsum(subscripts: str, *operands: Any, preferred_element_type: Any = None) -> Any:
    arrays = promote(*operands)
    truths = arrays[0].value.type.dtype == "bool"
    if truths:
        arrays = tuple(convert(x, "i32") for x in arrays)
    terms, output = _parsed(subscripts, [x.ndim for x in arrays])
    sizes = _sizes(subscripts, terms, [x.shape for x in arrays])
    pairs = [_simple(x, term, sizes) for x, term in zip(arrays, terms, strict=True)]
    while len(pairs) > 1:
        i, j = _cheapest([term for _, term in pairs], output, sizes)
        (y, right), (x, left) = pairs.pop(j), pairs.pop(i)
        wanted = "".join([output, *(term for _, term in pairs)])
        x, left = _summed(x, left, wanted + right)
        y, right = _summed(y, right, wanted + left)
        order = _order(left, right, wanted) if pairs else output
        dtype = None if pairs else preferred_element_type
        pairs.insert(i, (contract(x, y, f"{left},{right}->{order}", dtype), order))
    result, term = _summed(*pairs[0], output)
    if term != output:
        perm = tuple(map(term.index, output))
        result = emit("transpose", result, perm=perm, weak=result.weak_type)
    if truths:
        result = truth(result)
    if preferred_element_type is None:
        return result
    return convert(result, dtype_of(preferred_element_type))


def _parsed(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the output; `...` becomes letters nobody uses."""
    inputs, arrow, output = subscripts.partition("->")
    terms = inputs.split(",")
    used = inputs.replace("...", "").replace(",", "")
    if len(terms) != len(ranks):
        raise _meaningless(subscripts, f"names {len(terms)} operands, but there are {len(ranks)}")
    for term in (*terms, output):
        letters = term.replace("...", "", 1)
        if letters and not (letters.isalpha() and letters.isascii()):
            raise _meaningless(subscripts, f"has {term!r}, which is not made of letters")
    free = [letter for letter in ascii_uppercase + ascii_lowercase if letter not in used]
    named = [len(term.replace("...", "")) for term in terms]
    for term, count, rank in zip(terms, named, ranks, strict=True):
        if count > rank or (count < rank and "..." not in term):
            raise _meaningless(subscripts, f"has {term!r} for an operand of rank {rank}")
    unnamed = max(rank - n for rank, n in zip(ranks, named, strict=True))
    spread = "".join(free[:unnamed])
    if not arrow:
        counts = Counter(used)
        output = "..." + "".join(sorted(c for c in counts if counts[c] == 1))
    # As in JAX, the axes of an ellipsis that is not after '->' are summed.
    output = output.replace("...", spread)
    for letter in output:
        if letter not in used + spread:
            raise _meaningless(subscripts, f"has {letter!r} only after '->'")
        if output.count(letter) > 1:
            raise _meaningless(subscripts, f"has {letter!r} twice after '->'")
    filled = [
        term.replace("...", spread[unnamed - rank + n :])
        for term, n, rank in zip(terms, named, ranks, strict=True)
    ]
    return filled, output


def _meaningless(subscripts: str, why: str) -> ArgumentError:
    return ArgumentError(point(f"einsum subscripts {subscripts!r}: {why}"))


def _sizes(
    subscripts: str, terms: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> dict[str, int]:
    """The size of each letter; 1 gives way to any other. Raises `ShapeError`."""
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            if sizes.setdefault(letter, size) == 1:
                sizes[letter] = size
            elif size not in (1, sizes[letter]):
                told = " and ".join(map(str, shapes))
                raise ShapeError(
                    point(
                        f"einsum {subscripts!r} of shapes {told}: {letter!r} is both "
                        f"{sizes[letter]} and {size}"
                    )
                )
    return sizes


def _simple(x: Tracer, term: str, sizes: dict[str, int]) -> tuple[Tracer, str]:
    """An operand with each letter once, in its full size."""
    kept = [(c, n) for c, n in zip(term, x.shape, strict=True) if n == sizes[c]]
    x, term = reshape(x, [n for _, n in kept]), "".join(c for c, _ in kept)
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first, second = term.index(letter), term.rindex(letter)
            x = diagonal_of(x, first, second)
            term = term[:second] + term[second + 1 :]
    return x, term


def _summed(x: Tracer, term: str, wanted: str) -> tuple[Tracer, str]:
    """An operand without the letters that nothing else has."""
    dims = tuple(d for d, letter in enumerate(term) if letter not in wanted)
    if not dims:
        return x, term
    summed: Tracer = emit("sum", x, dims=dims, weak=x.weak_type)
    return summed, "".join(letter for letter in term if letter in wanted)


def _order(left: str, right: str, wanted: str) -> str:
    """The letters of an intermediate result."""
    return "".join(dict.fromkeys(letter for letter in left + right if letter in wanted))


def _cheapest(terms: Sequence[str], output: str, sizes: dict[str, int]) -> tuple[int, int]:
    """The two operands to multiply next."""

    def size(letters: str) -> int:
        return prod(sizes[letter] for letter in letters)

    def cost(pair: tuple[int, int]) -> int:
        i, j = pair
        wanted = "".join([output, *(t for k, t in enumerate(terms) if k not in pair)])
        return size(_order(terms[i], terms[j], wanted)) - size(terms[i]) - size(terms[j])

    return min(combinations(range(len(terms)), 2), key=cost)
