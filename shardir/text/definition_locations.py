"""The source locations at which a text of the IR, or of MLIR, defines its values and results."""

import re
from collections.abc import Iterator, Mapping

from lark import Token

from shardir.ir.module import Loc
from shardir.text import syntax

DefinitionLocations = dict[tuple[str, str], Loc]
"""The locations by function name, and `%x` for a value or `result 0` for a result."""


def find_definition_locations(text: str, file: str) -> DefinitionLocations:
    """Return the line and column of every value and of every result's type.

    Raises `ParseError` if the text is not valid IR.
    """
    source = syntax.IrSource(text, file)
    locations: DefinitionLocations = {}

    def note(function: str, name: str, token: Token) -> None:
        locations[function, name] = Loc(file, token.line or 1, token.column or 1)

    for item in source.module().items:
        if isinstance(item, syntax.FunctionSyntax):
            function = str(item.name[1:]).strip('"')
            for token in _definition_tokens(item.body):
                note(function, str(token), token)
            for i, result in enumerate(item.results):
                type = result.type
                note(function, f"result {i}", type if isinstance(type, Token) else type.tensor)
    return locations


def _definition_tokens(block: syntax.BlockSyntax) -> Iterator[Token]:
    yield from (param.name for param in block.params)
    for op in block.ops:
        for part in op.parts:
            if isinstance(part, Token) and part.type == "VALUE":
                yield part
            elif isinstance(part, Token):
                break
        for part in op.parts:
            if isinstance(part, syntax.BlockSyntax):
                yield from _definition_tokens(part)


_FUNCTION = re.compile(r'func\.func\s+(?:public\s+|private\s+)?@("[^"]*"|[\w.$-]+)')
_DEFINITION = re.compile(r"%[\w.$-]+(?=\s*:(?!:)|(?::\d+)?\s*=(?!=))")


def find_mlir_locations(text: str, file: str) -> Mapping[tuple[str, str], Loc]:
    """Return the locations by function name and `%x` for a value; the first definition counts."""
    result: dict[tuple[str, str], Loc] = {}
    function = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := _FUNCTION.search(line):
            function = head[1].strip('"')
        for match in _DEFINITION.finditer(line):
            place = Loc(file, number, match.start() + 1)
            result.setdefault((function, match[0]), place)
    return result
