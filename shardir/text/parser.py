"""Parser: text to IR.

`shardir.text.syntax` parses the text to syntax records; this module resolves them in program order.
The first one that is invalid raises an error with its position.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from lark import Token

from shardir import ops as ops  # declares the operations
from shardir.errors import OperationTypeError, ParseError, RuleError, count_noun, suggest_name
from shardir.ir.builder import infer_types
from shardir.ir.module import Block, Function, GlobalTensor, Loc, Module, Op, SpmdInterface, Value
from shardir.ir.operation import OPS, Attr, OpSpec
from shardir.ir.signature import signature_of
from shardir.ir.types import TensorType
from shardir.text import syntax
from shardir.text.resolver import ShardedType, SyntaxResolver


def parse(text: str, file: str = "<text>") -> Module:
    """Parse a module; raise `ParseError` at the first error."""
    if not isinstance(text, str):
        raise ParseError(f"a program is text, got {text!r}", "", 1, 1, 1, file)
    source = syntax.IrSource(text, file)
    try:
        return _module(source, source.module())
    except RecursionError:
        raise source.error("this text is nested too deeply", 0, 1) from None


def _module(source: syntax.IrSource, written: syntax.ModuleSyntax) -> Module:
    meanings = SyntaxResolver(source)
    functions: dict[str, Function] = {}
    for item in written.items:
        if isinstance(item, syntax.MeshSyntax):
            if functions:
                raise source.fail("meshes come before functions", item.name)
            meanings.declare_mesh(item)
            continue
        name = meanings.name(item.name)
        if name in functions:
            raise source.fail(f"two functions are called @{name}", item.name)
        functions[name] = _FunctionParser(source, meanings, item).parse_function()
    return Module(tuple(meanings.meshes.values()), tuple(functions.values()))


@dataclass(slots=True)
class _PendingOp:
    """An operation while its parts are being resolved."""

    names: list[Token]
    at: Token
    operands: list[Value] = field(default_factory=list)
    attrs: dict[str, Attr] = field(default_factory=dict)
    types: list[syntax.TypeSyntax] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    loc: Loc | None = None
    why: str = ""


class _FunctionParser:
    """Resolves one function."""

    def __init__(
        self, source: syntax.IrSource, meanings: SyntaxResolver, written: syntax.FunctionSyntax
    ) -> None:
        self.source, self.meanings, self.written = source, meanings, written
        self.values: dict[str, Value] = {}
        self.ended: set[str] = set()
        self.scopes: list[list[str]] = [[]]

    def parse_function(self) -> Function:
        written, name = self.written, self.meanings.name(self.written.name)
        params = self.params(written.params)
        outer_params = [self.parse_global(p.outer, p.name) for p in written.params]
        typed = [self.meanings.resolve_type(r.type) for r in written.results]
        at = [_token_of_type(r.type) for r in written.results]
        outer_results = [
            self.parse_global(r.outer, t) for r, t in zip(written.results, at, strict=True)
        ]
        body = self.parse_block(written.body, params)
        if len(body.returns) != len(typed):
            raise self.source.fail(
                f"@{name} returns {count_noun(len(body.returns), 'value')}, "
                f"but states {count_noun(len(typed), 'result')}",
                written.body.end,
            )
        for value, (type, _), token in zip(body.returns, typed, at, strict=True):
            if value.type != type:
                message = f"@{name} returns %{value.name} of type {value.type}, not {type}"
                raise self.source.fail(message, token)
        interface = SpmdInterface(_without_none(outer_params), _without_none(outer_results))
        shardings = tuple(sharding for _, sharding in typed)
        return Function(name, body, shardings, interface if written.spmd else None)

    def parse_global(self, written: syntax.TypeSyntax | None, at: Token) -> GlobalTensor | None:
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
                "only the parameters and results of an spmd function are shards",
                _token_of_type(written),
            )
        return self.meanings.resolve_global(written)

    def params(self, written: list[syntax.ParamSyntax]) -> tuple[Value, ...]:
        return tuple(self.define(p.name, self.meanings.resolve_type(p.type)) for p in written)

    def parse_block(self, written: syntax.BlockSyntax, params: tuple[Value, ...]) -> Block:
        ops = tuple(self.parse_op(op) for op in written.ops)
        return Block(params, ops, tuple(self.use(value) for value in written.values))

    def parse_inner_block(self, written: syntax.BlockSyntax) -> Block:
        """Return a block of an operation; its values go out of scope at its end."""
        for param in written.params:
            if param.outer is not None:
                raise self.source.fail(
                    "only the parameters and results of an spmd function are shards",
                    _token_of_type(param.outer),
                )
        self.scopes.append([])
        block = self.parse_block(written, self.params(written.params))
        for name in self.scopes.pop():
            self.ended.add(name)
            del self.values[name]
        return block

    def parse_op(self, written: syntax.OpSyntax) -> Op:
        """Return an operation; its parts are in text order."""
        parts = written.parts
        split = 0
        while parts[split].type == "VALUE":
            split += 1
        call = _PendingOp(parts[:split], parts[split])
        spec = self.find_spec(call.at)
        for part in parts[split + 1 :]:
            kind = type(part)
            if kind is Token and part.type == "VALUE":
                if call.attrs:
                    raise self.source.fail("operands come before attributes", part)
                call.operands.append(self.use(part))
            elif kind is syntax.AttributeSyntax:
                self.attribute(call, spec, part)
            elif kind is Token or kind is syntax.AnnotatedType:
                call.types.append(part)
            elif kind is syntax.BlockSyntax:
                call.blocks.append(self.parse_inner_block(part))
            elif kind is syntax.LocSyntax:
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

    def find_spec(self, name: Token) -> OpSpec:
        spec = OPS.find(str(name))
        if spec is None:
            hint = suggest_name(name, OPS.names())
            message = f"no operation is called {str(name)!r}"
            raise self.source.fail(f"{message}; {hint}" if hint else message, name)
        return spec

    def attribute(self, call: _PendingOp, spec: OpSpec, written: syntax.AttributeSyntax) -> None:
        name = str(written.name)
        if name in call.attrs:
            raise self.source.fail(f"attribute {name!r} is given twice", written.name)
        attr = self.meanings.resolve_attr(name, written.attr)
        try:
            signature_of(spec).check_attr(name, attr)
        except OperationTypeError as error:
            raise self.source.fail(str(error), written.name) from None
        call.attrs[name] = attr

    def result_types(self, call: _PendingOp, spec: OpSpec) -> list[ShardedType]:
        """Return the stated result types, after checking that the type rule infers them."""
        fail, names, types = self.source.fail, call.names, call.types
        if len(names) != len(types):
            at = names[len(types)] if len(names) > len(types) else _token_of_type(types[len(names)])
            raise fail(
                f"{spec.name} names {count_noun(len(names), 'result')}, "
                f"but states {count_noun(len(types), 'type')}",
                at,
            )
        typed = [self.meanings.resolve_type(type) for type in types]
        stated = tuple(type for type, _ in typed)
        inferred = self.infer_types(call, spec, stated)
        if inferred == stated:
            return typed
        if len(inferred) != len(stated):
            at = names[min(len(inferred), len(names) - 1)] if names else call.at
            raise fail(
                f"{spec.name} has {count_noun(len(inferred), 'result')}, not {len(names)}", at
            )
        wrong = next(i for i, type in enumerate(stated) if type != inferred[i])
        raise fail(
            f"the result of {spec.name} is {inferred[wrong]}, not {stated[wrong]}",
            _token_of_type(types[wrong]),
        )

    def infer_types(
        self, call: _PendingOp, spec: OpSpec, stated: tuple[TensorType, ...]
    ) -> tuple[TensorType, ...]:
        result = stated[0] if len(stated) == 1 else stated
        try:
            signature = signature_of(spec)
            signature.check_operands(len(call.operands))
            signature.check_given(call.attrs)
            signature.check_blocks(len(call.blocks))
            return infer_types(spec, call.operands, result, call.attrs, tuple(call.blocks))
        except (OperationTypeError, RuleError) as error:
            raise self.source.fail(str(error), call.at) from None
        except Exception:  # Attributes of a kind that the rule does not expect.
            message = f"{spec.name}: the attributes are not of the right kind"
            raise self.source.fail(message, call.at) from None

    def loc(self, written: syntax.LocSyntax) -> Loc:
        integer = self.meanings.integer
        return Loc(
            self.meanings.string(written.file), integer(written.line), integer(written.column)
        )

    def define(self, token: Token, typed: ShardedType) -> Value:
        name = self.meanings.name(token)
        if name in self.values or name in self.ended:
            first = next(t for t in _definition_tokens(self.written) if t == token)
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
        elif any(t == token for t in _definition_tokens(self.written)):
            reason = "is used before it is defined"
        else:
            hint = suggest_name(token, [f"%{other}" for other in self.values])
            reason = "is not defined" + (f"; {hint}" if hint else "")
        raise self.source.fail(f"{token} {reason}", token)


def _definition_tokens(written: syntax.FunctionSyntax) -> Iterator[Token]:
    """Yield the definitions of values of a function in text order."""

    def of(block: syntax.BlockSyntax) -> Iterator[Token]:
        yield from (param.name for param in block.params)
        for op in block.ops:
            for part in op.parts:
                if type(part) is not Token or part.type != "VALUE":
                    break
                yield part
            for part in op.parts:
                if type(part) is syntax.BlockSyntax:
                    yield from of(part)

    return of(written.body)


def _token_of_type(written: syntax.TypeSyntax) -> Token:
    return written if isinstance(written, Token) else written.tensor


def _without_none(outer: list[GlobalTensor | None]) -> tuple[GlobalTensor, ...]:
    return tuple(g for g in outer if g is not None)
