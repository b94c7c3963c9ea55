"""View folding of contractions: einsum letters for the pieces of bases.

The factors of a contraction are split like the views of its operands, and merged again where their
pieces are contiguous in all operands that have them. A device's part of a batch and its position
along the mesh therefore become one factor, as in the program before partitioning.
"""

from collections.abc import Mapping, Sequence
from string import ascii_letters

from shardir.ir.module import Op
from shardir.ops.contraction.convolution_factors import parse_dims
from shardir.passes.simplify.view_folding.folder import FoldingRule, ViewFolder
from shardir.passes.simplify.view_folding.views import (
    BROADCAST_DIM,
    View,
    ViewPiece,
    ViewPieces,
    identity_dims,
    merge_pieces,
    position_in_base,
    refine_pieces,
)
from shardir.passes.whole_program.dim_arrangement import reshape_if_needed

LetterPart = tuple[str, int]
"""A part of a letter: the letter and the index of the part, from major to minor."""


def _dot(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    dims: str = op.attrs["dims"]
    inputs, _, output = dims.partition("->")
    terms = inputs.split(",")
    if any(view.base in folder.splats for view in operands):
        return None
    walked = _pieces_by_letter(terms, operands)
    if walked is None:
        return None
    loops = {letter: _parts_of_letter(letter, walked) for term in terms for letter in term}
    located = _locate_parts(loops, walked, output)
    if located is None:
        return None
    places, repeated = located
    chains = _chains([loop for letter in loops for loop in loops[letter]], places, output)
    spelled = _assign_letters(chains)
    if spelled is None:
        return None
    sizes = {
        chain[0]: _size([next(p[loop] for p in places if loop in p) for loop in chain])
        for chain in chains
    }
    values, spellings = [], []
    for view, pieces in zip(operands, places, strict=True):
        mine = sorted(
            (chain[0] for chain in chains if chain[0] in pieces),
            key=lambda loop: (pieces[loop].dim, -pieces[loop].stride),
        )
        values.append(reshape_if_needed(folder.b, view.base, [sizes[loop] for loop in mine]))
        spellings.append("".join(spelled[loop] for loop in mine))
    order = {loop: i for i, loop in enumerate(_flatten_parts(output, loops))}
    output_chains = sorted(
        (c for c in chains if c[0][0] in output), key=lambda chain: order[chain[-1]]
    )
    output_spelling = "".join(spelled[chain[0]] for chain in output_chains)
    type = op.result.type.with_shape([sizes[chain[0]] for chain in output_chains])
    text = f"{','.join(spellings)}->{output_spelling}"
    value = folder.emit(op, values, type, {**op.attrs, "dims": text})
    folder.contracted.add(value)
    new = _result_pieces(output_chains, places)
    spread = {loop: ViewPiece(BROADCAST_DIM, 0, _width(loop, walked)) for loop in repeated}
    return [
        View(
            value,
            tuple(merge_pieces([(new | spread)[p] for p in loops[letter]]) for letter in output),
        )
    ]


def _locate_parts(
    loops: Mapping[str, tuple[LetterPart, ...]],
    walked: Sequence[dict[str, ViewPieces]],
    output: str,
) -> tuple[list[dict[LetterPart, ViewPiece]], set[LetterPart]] | None:
    """Return the piece of each part of a letter in both operands, and the parts that both operands
    repeat.

    The result is `None` if an operand repeats a letter that is summed.
    """
    places: list[dict[LetterPart, ViewPiece]] = [{}, {}]
    repeated: set[LetterPart] = set()
    for letter, parts in loops.items():
        for loop in parts:
            has = [i for i in (0, 1) if letter in walked[i]]
            real = [i for i in has if walked[i][letter][loop[1]].dim != BROADCAST_DIM]
            if letter not in output and real != has:
                return None
            if not real:
                repeated.add(loop)
            for i in real:
                places[i][loop] = walked[i][letter][loop[1]]
    return places, repeated


def _result_pieces(
    chains: Sequence[Sequence[LetterPart]], places: Sequence[dict[LetterPart, ViewPiece]]
) -> dict[LetterPart, ViewPiece]:
    """Return the pieces of a result whose dimensions are chains of parts."""
    pieces: dict[LetterPart, ViewPiece] = {}
    for d, chain in enumerate(chains):
        stride = 1
        for loop in reversed(chain):
            size = _extent(loop, places)
            pieces[loop] = ViewPiece(d, stride, size)
            stride *= size
    return pieces


def _pieces_by_letter(
    terms: Sequence[str], operands: Sequence[View]
) -> list[dict[str, ViewPieces]] | None:
    """Return the pieces of each letter in each operand, refined to the same sizes in both."""
    first, second = (
        dict(zip(term, view.dims, strict=True)) for term, view in zip(terms, operands, strict=True)
    )
    for letter in first:
        if letter in second:
            both = refine_pieces(first[letter], second[letter])
            if both is None:
                return None
            first[letter], second[letter] = both
    return [first, second]


def _parts_of_letter(
    letter: str, walked: Sequence[dict[str, ViewPieces]]
) -> tuple[LetterPart, ...]:
    pieces = next(each[letter] for each in walked if letter in each)
    return tuple((letter, i) for i in range(len(pieces)))


def _flatten_parts(output: str, loops: dict[str, tuple[LetterPart, ...]]) -> list[LetterPart]:
    return [loop for letter in output for loop in loops[letter]]


def _chains(
    loops: Sequence[LetterPart], places: Sequence[dict[LetterPart, ViewPiece]], output: str
) -> list[list[LetterPart]]:
    """Return sequences of parts that form one factor in all operands: each continues the one
    before."""
    follows: dict[LetterPart, LetterPart] = {}
    for loop in loops:
        nexts = set()
        for pieces in places:
            if loop in pieces:
                nexts.add(_next_part(loop, pieces))
        if len(nexts) != 1:
            continue
        (after,) = nexts
        if after is None or (after[0] in output) != (loop[0] in output):
            continue
        if all((loop in pieces) == (after in pieces) for pieces in places):
            follows[loop] = after
    behind = set(follows.values())
    chains = []
    for loop in loops:
        if loop in behind or not any(loop in pieces for pieces in places):
            continue
        chain = [loop]
        while chain[-1] in follows:
            chain.append(follows[chain[-1]])
        chains.append(chain)
    return chains


def _next_part(loop: LetterPart, pieces: dict[LetterPart, ViewPiece]) -> LetterPart | None:
    """Return the part that covers the elements each step of `loop` strides over."""
    piece = pieces[loop]
    for other, at in pieces.items():
        if at.dim == piece.dim and at.stride * at.size == piece.stride:
            return other
    return None


def _assign_letters(chains: Sequence[Sequence[LetterPart]]) -> dict[LetterPart, str] | None:
    """Return a letter for each chain: that of its last part unless it is taken."""
    spelled: dict[LetterPart, str] = {}
    preferred = [chain[-1][0] for chain in chains]
    free = [letter for letter in ascii_letters if letter not in preferred]
    for chain, choice in zip(chains, preferred, strict=True):
        if choice in spelled.values():
            if not free:
                return None
            choice = free.pop(0)
        spelled[chain[0]] = choice
    return spelled


def _extent(loop: LetterPart, places: Sequence[dict[LetterPart, ViewPiece]]) -> int:
    return next(pieces[loop].size for pieces in places if loop in pieces)


def _width(loop: LetterPart, walked: Sequence[dict[str, ViewPieces]]) -> int:
    return next(each[loop[0]][loop[1]].size for each in walked if loop[0] in each)


def _size(pieces: Sequence[ViewPiece]) -> int:
    size = 1
    for piece in pieces:
        size *= piece.size
    return size


# Convolutions


def _convolution(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    """Fold views of batch and feature dimensions, which may be in any order on which all operands
    agree: that of the bases."""
    x, w = operands
    # With feature groups, the features of the operands have no common refinement.
    if op.attrs.get("batch_groups", 1) != 1:
        return None
    of, by, to = parse_dims(op.attrs["dims"])
    both = refine_pieces(x.dims[of.features_or_outputs], w.dims[by.batch_or_inputs])
    if both is None:
        return None
    pairs = sorted(zip(*both, strict=True), key=lambda pair: position_in_base(pair[0]))
    batch, outputs = (
        _sort_pieces(x.dims[of.batch_or_inputs]),
        _sort_pieces(w.dims[by.features_or_outputs]),
    )
    left, right = list(x.dims), list(w.dims)
    left[of.batch_or_inputs], left[of.features_or_outputs] = (
        merge_pieces(batch),
        merge_pieces([piece for piece, _ in pairs]),
    )
    right[by.features_or_outputs], right[by.batch_or_inputs] = (
        merge_pieces(outputs),
        merge_pieces([piece for _, piece in pairs]),
    )
    values = [
        folder.materialize(View(x.base, tuple(left))),
        folder.materialize(View(w.base, tuple(right))),
    ]
    shape = list(op.result.type.shape)
    shape[to.batch_or_inputs], shape[to.features_or_outputs] = _size(batch), _size(outputs)
    value = folder.emit(op, values, op.result.type.with_shape(shape), op.attrs)
    dims = list(identity_dims(tuple(shape)))
    dims[to.batch_or_inputs] = _renumber_pieces(
        x.dims[of.batch_or_inputs], batch, to.batch_or_inputs
    )
    dims[to.features_or_outputs] = _renumber_pieces(
        w.dims[by.features_or_outputs], outputs, to.features_or_outputs
    )
    return [View(value, tuple(dims))]


def _sort_pieces(pieces: ViewPieces) -> list[ViewPiece]:
    """Return the pieces that are not broadcast, in the order of the base."""
    return sorted((piece for piece in pieces if piece.dim != BROADCAST_DIM), key=position_in_base)


def _renumber_pieces(pieces: ViewPieces, ordered: Sequence[ViewPiece], dim: int) -> ViewPieces:
    """Return the pieces as those of dimension `dim`, which contains them in this order."""
    stride = 1
    new: dict[ViewPiece, ViewPiece] = {}
    for piece in reversed(ordered):
        new[piece] = ViewPiece(dim, stride, piece.size)
        stride *= piece.size
    return merge_pieces([new.get(piece, piece) for piece in pieces])


CONTRACTION_RULES: dict[str, FoldingRule] = {"dot": _dot, "convolution": _convolution}
