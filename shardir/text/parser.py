"""Parser: text to IR.

`shardir.text.syntax` parses the text to syntax records; this module resolves them in program order.
The first one that is invalid raises an error with its position.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from lark import Token

from shardir import ops as ops  # declares the operations
from shardir.build import infer
from shardir.errors import OperationTypeError, ParseError, counted, suggestion
from shardir.ir import Block, Function, Global, Interface, Loc, Module, Op, Value
from shardir.opset import OPS, Attr, OpSpec
from shardir.signature import signature_of
from shardir.text import syntax
from shardir.text.meanings import Meanings, Typed
from shardir.types import TensorType


def parse(text: str, file: str = "<text>") -> Module:
    """Parse a module; raise `ParseError` at the first error."""
    if not isinstance(text, str):
        raise ParseError(f"a program is text, got {text!r}", "", 1, 1, 1, file)
    source = syntax.Source(text, file)
    try:
        return _module(source, source.module())
    except RecursionError:
        raise source.error("this text is nested too deeply", 0, 1) from None


def _module(source: syntax.Source, written: syntax.Module) -> Module:
    meanings = Meanings(source)
    functions: dict[str, Function] = {}
    for item in written.items:
        if isinstance(item, syntax.Mesh):
            if functions:
                raise source.fail("meshes come before functions", item.name)
            meanings.mesh(item)
            continue
        name = meanings.name(item.name)
        if name in functions:
            raise source.fail(f"two functions are called @{name}", item.name)
        functions[name] = _Reader(source, meanings, item).function()
    return Module(tuple(meanings.meshes.values()), tuple(functions.values()))


@dataclass(slots=True)
class _Call:
    """An operation while its parts are being resolved."""

    names: list[Token]
    at: Token
    operands: list[Value] = field(default_factory=list)
    attrs: dict[str, Attr] = field(default_factory=dict)
    types: list[syntax.Type] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    loc: Loc | None = None
    why: str = ""


class _Reader:
    """Resolves one function."""

    def __init__(self, source: syntax.Source, meanings: Meanings, written: syntax.Function) -> None:
        self.source, self.meanings, self.written = source, meanings, written
        self.values: dict[str, Value] = {}
        self.ended: set[str] = set()
        self.scopes: list[list[str]] = [[]]

    def function(self) -> Function:
        written, name = self.written, self.meanings.name(self.written.name)
        params = self.params(written.params)
        outer_params = [self.outer(p.outer, p.name) for p in written.params]
        typed = [self.meanings.typed(r.type) for r in written.results]
        at = [_token(r.type) for r in written.results]
        outer_results = [self.outer(r.outer, t) for r, t in zip(written.results, at, strict=True)]
        body = self.block(written.body, params)
        if len(body.returns) != len(typed):
            raise self.source.fail(
                f"@{name} returns {counted(len(body.returns), 'value')}, "
                f"but states {counted(len(typed), 'result')}",
                written.body.end,
            )
        for value, (type, _), token in zip(body.returns, typed, at, strict=True):
            if value.type != type:
                message = f"@{name} returns %{value.name} of type {value.type}, not {type}"
                raise self.source.fail(message, token)
        interface = Interface(_present(outer_params), _present(outer_results))
        shardings = tuple(sharding for _, sharding in typed)
        return Function(name, body, shardings, interface if written.spmd else None)

    def outer(self, written: syntax.Type | None, at: Token) -> Global | None:
        """Return the global tensor of a parameter or result of a per-device function."""
        if written is None and self.written.spmd:
            raise self.source.fail(
                "an spmd function states global tensor types; write f32[16] of f32[64@data]",
                at,
            )
        if written is None:
            return None
        if not self.written.spmd:
            raise self.source.fail(
                "only the parameters and results of a spmd function are shards", _token(written)
            )
        return self.meanings.outer(written)

    def params(self, written: list[syntax.Param]) -> tuple[Value, ...]:
        return tuple(self.define(p.name, self.meanings.typed(p.type)) for p in written)

    def block(self, written: syntax.Block, params: tuple[Value, ...]) -> Block:
        ops = tuple(self.op(op) for op in written.ops)
        return Block(params, ops, tuple(self.use(value) for value in written.values))

    def inner(self, written: syntax.Block) -> Block:
        """Return a block of an operation; its values go out of scope at its end."""
        for param in written.params:
            if param.outer is not None:
                raise self.source.fail(
                    "only the parameters and results of a spmd function are shards",
                    _token(param.outer),
                )
        self.scopes.append([])
        block = self.block(written, self.params(written.params))
        for name in self.scopes.pop():
            self.ended.add(name)
            del self.values[name]
        return block

    def op(self, written: syntax.Op) -> Op:
        """Return an operation; its parts are in text order."""
        parts = written.parts
        split = 0
        while parts[split].type == "VALUE":
            split += 1
        call = _Call(parts[:split], parts[split])
        spec = self.spec(call.at)
        for part in parts[split + 1 :]:
            kind = type(part)
            if kind is Token and part.type == "VALUE":
                if call.attrs:
                    raise self.source.fail("operands come before attributes", part)
                call.operands.append(self.use(part))
            elif kind is syntax.Attribute:
                self.attribute(call, spec, part)
            elif kind is Token or kind is syntax.Marked:
                call.types.append(part)
            elif kind is syntax.Block:
                call.blocks.append(self.inner(part))
            elif kind is syntax.Loc:
                call.loc = self.loc(part)
            else:
                call.why = self.meanings.string(part.text)
        types = self.result_types(call, spec)
        return Op(
            spec,
            tuple(call.operands),
            tuple(map(self.define, call.names, types)),
            call.attrs,
            tuple(call.blocks),
            call.loc,
            call.why,
        )

    def spec(self, name: Token) -> OpSpec:
        spec = OPS.get(name)
        if spec is None:
            hint = suggestion(name, OPS)
            message = f"no operation is called {str(name)!r}"
            raise self.source.fail(f"{message}; {hint}" if hint else message, name)
        return spec

    def attribute(self, call: _Call, spec: OpSpec, written: syntax.Attribute) -> None:
        name = str(written.name)
        if name in call.attrs:
            raise self.source.fail(f"attribute {name!r} is given twice", written.name)
        attr = self.meanings.attr(name, written.attr)
        try:
            signature_of(spec).check_attr(name, attr)
        except OperationTypeError as error:
            raise self.source.fail(str(error), written.name) from None
        call.attrs[name] = attr

    def result_types(self, call: _Call, spec: OpSpec) -> list[Typed]:
        """Return the stated result types, after checking that the type rule infers them."""
        fail, names, types = self.source.fail, call.names, call.types
        if len(names) != len(types):
            at = names[len(types)] if len(names) > len(types) else _token(types[len(names)])
            raise fail(
                f"{spec.name} names {counted(len(names), 'result')}, "
                f"but states {counted(len(types), 'type')}",
                at,
            )
        typed = [self.meanings.typed(type) for type in types]
        stated = tuple(type for type, _ in typed)
        inferred = self.inferred(call, spec, stated)
        if inferred == stated:
            return typed
        if len(inferred) != len(stated):
            at = names[min(len(inferred), len(names) - 1)] if names else call.at
            raise fail(f"{spec.name} has {counted(len(inferred), 'result')}, not {len(names)}", at)
        wrong = next(i for i, type in enumerate(stated) if type != inferred[i])
        raise fail(
            f"the result of {spec.name} is {inferred[wrong]}, not {stated[wrong]}",
            _token(types[wrong]),
        )

    def inferred(
        self, call: _Call, spec: OpSpec, stated: tuple[TensorType, ...]
    ) -> tuple[TensorType, ...]:
        result = stated[0] if len(stated) == 1 else stated
        try:
            signature = signature_of(spec)
            signature.check_operands(len(call.operands))
            signature.check_given(call.attrs)
            signature.check_blocks(len(call.blocks))
            return infer(spec, call.operands, result, call.attrs, tuple(call.blocks))
        except OperationTypeError as error:
            raise self.source.fail(str(error), call.at) from None
        except Exception:  # Attributes of a kind that the rule does not expect.
            message = f"{spec.name}: the attributes are not of the right kind"
            raise self.source.fail(message, call.at) from None

    def loc(self, written: syntax.Loc) -> Loc:
        integer = self.meanings.integer
        return Loc(
            self.meanings.string(written.file), integer(written.line), integer(written.column)
        )

    def define(self, token: Token, typed: Typed) -> Value:
        name = self.meanings.name(token)
        if name in self.values or name in self.ended:
            first = next(t for t in _definitions(self.written) if t == token)
            raise self.source.fail(
                f"{token} is defined twice, first on line {self.source.line(first)}", token
            )
        self.values[name] = value = Value(typed[0], name, typed[1])
        self.scopes[-1].append(name)
        return value

    def use(self, token: Token) -> Value:
        value = self.values.get(self.meanings.name(token))
        if value is not None:
            return value
        name = self.meanings.name(token)
        if name in self.ended:
            reason = "is defined in a block that has ended; let the block yield it"
        elif any(t == token for t in _definitions(self.written)):
            reason = "is used before it is defined"
        else:
            hint = suggestion(token, [f"%{other}" for other in self.values])
            reason = "is not defined" + (f"; {hint}" if hint else "")
        raise self.source.fail(f"{token} {reason}", token)


def _definitions(written: syntax.Function) -> Iterator[Token]:
    """Yield the definitions of values of a function in text order."""

    def of(block: syntax.Block) -> Iterator[Token]:
        yield from (param.name for param in block.params)
        for op in block.ops:
            for part in op.parts:
                if type(part) is not Token or part.type != "VALUE":
                    break
                yield part
            for part in op.parts:
                if type(part) is syntax.Block:
                    yield from of(part)

    return of(written.body)


def _token(written: syntax.Type) -> Token:
    return written if isinstance(written, Token) else written.tensor


def _present(outer: list[Global | None]) -> tuple[Global, ...]:
    return tuple(g for g in outer if g is not None)
