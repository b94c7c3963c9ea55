"""The source locations at which a text defines its values and results."""

from collections.abc import Iterator

from lark import Token

from shardir.ir import Loc
from shardir.text import syntax

Places = dict[tuple[str, str], Loc]
"""The locations by function name, and `%x` for a value or `result 0` for a result."""


def places(text: str, file: str) -> Places:
    """Return the line and column of every value and of every result's type.

    Raises `ParseError` if the text is not valid IR.
    """
    source = syntax.Source(text, file)
    found: Places = {}

    def note(function: str, name: str, token: Token) -> None:
        found[function, name] = Loc(file, token.line or 1, token.column or 1)

    for item in source.module().items:
        if isinstance(item, syntax.Function):
            function = str(item.name[1:]).strip('"')
            for token in _definitions(item.body):
                note(function, str(token), token)
            for i, result in enumerate(item.results):
                type = result.type
                note(function, f"result {i}", type if isinstance(type, Token) else type.tensor)
    return found


def _definitions(block: syntax.Block) -> Iterator[Token]:
    yield from (param.name for param in block.params)
    for op in block.ops:
        for part in op.parts:
            if isinstance(part, Token) and part.type == "VALUE":
                yield part
            elif isinstance(part, Token):
                break
        for part in op.parts:
            if isinstance(part, syntax.Block):
                yield from _definitions(part)
