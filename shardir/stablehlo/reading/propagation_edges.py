"""Reading of the record of propagation in the attributes of a text: edges and sharding origins.

`DebugReader` keeps the origins of parameters and results, and those of operations that are read as
one operation. It keeps the edges of the operations and results whose meaning does not change when
they are read: an operation of the IR whose operands are those of the text in the same order, as far
as edges refer to them. The edges of other operations describe no operation of the module.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lark import Token

from shardir.ir.mesh import Mesh
from shardir.ir.module import Module, Op, Value
from shardir.ir.sharding import Sharding
from shardir.stablehlo.debug_attributes import (
    EDGE_ATTRIBUTES,
    ORIGIN_ATTRIBUTES,
    ORIGIN_NAME,
    PROPAGATION_EDGES,
    SHARDING_ORIGINS,
    DebugAttributes,
)
from shardir.stablehlo.propagation_edges import AxisEdge, EdgeTensor, format_edges
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import OperationReader
from shardir.stablehlo.reading.sharding_origins import format_origin_lists, format_origins
from shardir.stablehlo.reading.shardings import ShardingResolver, angle_bracket_text

_PREFIX = "#sdy.propagation_edges"
_EDGE_OPERATIONS = ("sdy.data_flow_edge", "sdy.func_data_flow_edge")
"""Operations whose edges refer to the sources of a data flow edge, not to their operands."""
_OPERATIONS_WITH_ONE_SHARDING = ("sdy.sharding_constraint", "sdy.reshard", *_EDGE_OPERATIONS)
"""Operations whose origins are those of one sharding, not a list for their results."""


@dataclass
class DebugReader:
    """The attributes of a text: those of operations by the names of their function and of their
    first result, and those of the parameters and results of functions by their number."""

    shardings: ShardingResolver
    operations: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    results: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)
    params: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)

    def attributes_of(self, module: Module) -> DebugAttributes:
        """Return the attributes of the operations and results of the module that was read."""
        debug = DebugAttributes(results=dict(self.results))
        for function in module.functions:
            for op in function.body.walk():
                if op.results:
                    known = self.operations.get((function.name, op.results[0].name))
                    if known is not None:
                        debug.operations[op.results[0]] = known
            for number, param in enumerate(function.body.params):
                if (function.name, number) in self.params:
                    debug.params[param] = self.params[function.name, number]
        return debug

    def read_operation(
        self,
        call: OperationReader,
        function: str,
        operands: Sequence[Value],
        results: Sequence[Value],
        read: Sequence[Op],
    ) -> None:
        """Keep the edges and origins of an operation that became one of the operations `read`."""
        kept: dict[str, str] = {}
        maker = next((op for op in read if results and op.results == tuple(results)), None)
        for key in EDGE_ATTRIBUTES:
            if key not in call.attrs:
                continue
            mesh = self._mesh_of(call)
            edges = [self._edges(token, mesh) for token in self._tokens(key, call.attrs[key], call)]
            if key == PROPAGATION_EDGES and call.name not in _EDGE_OPERATIONS:
                self._check_tensors(call, edges[0])
            if maker is not None and _are_true_of(maker, operands, key, edges):
                texts = [format_edges(each, mesh) for each in edges]
                kept[key] = texts[0] if key == PROPAGATION_EDGES else f"[{', '.join(texts)}]"
        for key in ORIGIN_ATTRIBUTES:
            if key in call.attrs:
                text = self._origins_of_operation(call, key)
                if maker is not None and (maker.blocks or key in (SHARDING_ORIGINS, ORIGIN_NAME)):
                    kept[key] = text
        if kept:
            self.operations[function, results[0].name] = kept

    def _origins_of_operation(self, call: OperationReader, key: str) -> str:
        value = call.attrs[key]
        if key == ORIGIN_NAME:
            if not isinstance(value, Token) or value.type != "STRING":
                raise call.fail(f"{key} is a name in quotes")
            return str(value)
        mesh = self._mesh_of(call)
        if call.name in _OPERATIONS_WITH_ONE_SHARDING:
            return format_origins(value, call.types, mesh, call.at)
        count = len(call.names) if key == SHARDING_ORIGINS else None
        return format_origin_lists(value, call.types, mesh, call.at, count)

    def read_param(
        self, function: str, number: int, param: records.ParamRecord, sharding: Sharding | None
    ) -> None:
        """Keep the origins of a parameter of a function."""
        if kept := self._attributes_of_value(param, sharding):
            self.params[function, number] = kept

    def read_result(
        self, function: str, number: int, result: records.ParamRecord, sharding: Sharding | None
    ) -> None:
        """Keep the edges and origins of a result of a function."""
        if kept := self._attributes_of_value(result, sharding):
            self.results[function, number] = kept

    def _attributes_of_value(
        self, written: records.ParamRecord, sharding: Sharding | None
    ) -> dict[str, str]:
        kept: dict[str, str] = {}
        types = self.shardings.types
        for entry in written.attrs.entries if written.attrs else ():
            key = types.string(entry.key)
            if key == PROPAGATION_EDGES:
                token = self._token(key, entry.value, entry.key)
                mesh = self._mesh(token, [sharding])
                kept[key] = format_edges(self._edges(token, mesh), mesh)
            elif key == SHARDING_ORIGINS:
                mesh = self._mesh(entry.key, [sharding])
                kept[key] = format_origins(entry.value, types, mesh, entry.key)
        return kept

    def _tokens(self, key: str, value: object, call: OperationReader) -> list[Token]:
        """Return the edges of an attribute: one, or those of an array."""
        if key == PROPAGATION_EDGES:
            return [self._token(key, value, call.at)]
        if not isinstance(value, records.ListsRecord) or len(value.lists) != 1:
            raise call.fail(f"{key} is an array of {_PREFIX}<...>")
        return [self._token(key, item, call.at) for item in value.lists[0].items]

    def _token(self, key: str, value: object, at: Token) -> Token:
        if not isinstance(value, Token) or not value.startswith(_PREFIX):
            raise self.shardings.source.fail(f"{key} consists of {_PREFIX}<...>", at)
        return value

    def _mesh_of(self, call: OperationReader) -> Mesh:
        operands = [value.sharding for value in call.all_operands]
        return self._mesh(call.at, [*call.shardings, *operands])

    def _mesh(self, at: Token, shardings: Sequence[Sharding | None]) -> Mesh:
        """Return the mesh of edges: that of a sharding beside them, or the only mesh."""
        known = self.shardings.meshes
        for sharding in shardings:
            if sharding is not None and known[sharding.mesh].axes:
                return known[sharding.mesh]
        meshes = [mesh for mesh in known.values() if mesh.axes]
        if len(meshes) != 1:
            raise self.shardings.source.fail(
                "propagation edges and origins name axes of a mesh, and the module has "
                f"{len(meshes)} meshes with axes; state one of them by sdy.sharding",
                at,
            )
        return meshes[0]

    def _edges(self, token: Token, mesh: Mesh) -> list[AxisEdge]:
        """Return the edges of `#sdy.propagation_edges<[{step-0 = [...]}]>`."""
        inside, base = angle_bracket_text(token, 0)
        source = self.shardings.source
        steps: list[records.EdgeStepRecord] = source.parse("edges", inside, base)
        edges: list[AxisEdge] = []
        numbers: set[int] = set()
        for written in steps:
            step = self._number(written.step, base)
            if step in numbers:
                raise source.fail(f"step {step} is stated twice", written.step, base)
            numbers.add(step)
            for move in written.moves:
                axis = self.shardings.axis(move.axis, mesh, base)
                origin = self._tensor(move.source, base)
                targets = [self._tensor(target, base) for target in move.targets]
                for target, at in zip(targets, move.targets, strict=True):
                    if target == origin:
                        raise source.fail(f"{at} is the source and a target", at, base)
                    if targets.count(target) > 1:
                        raise source.fail(f"{at} is stated twice", at, base)
                edges += (AxisEdge(step, axis, origin, target) for target in targets)
        return edges

    def _tensor(self, token: Token, base: int) -> EdgeTensor:
        return EdgeTensor(token.startswith("result"), self._number(token, base))

    def _number(self, token: Token, base: int) -> int:
        digits = token.rpartition("-")[2]
        if len(digits) > 9:
            raise self.shardings.source.fail("this number is too large", token, base)
        return int(digits)

    def _check_tensors(self, call: OperationReader, edges: Sequence[AxisEdge]) -> None:
        """Check that the operation has the tensors of its edges."""
        counts = (len(call.all_operands), len(call.names))
        for tensor in (tensor for edge in edges for tensor in (edge.source, edge.target)):
            if tensor.number >= counts[tensor.is_result]:
                word = "result" if tensor.is_result else "operand"
                raise call.fail(f"{call.name} has no {word} {tensor.number} for {tensor}")


def _are_true_of(
    op: Op, operands: Sequence[Value], key: str, attributes: Sequence[Sequence[AxisEdge]]
) -> bool:
    """Return whether the edges of the text are true of an operation that was read."""
    same = [one is other for one, other in zip(op.operands, operands, strict=False)]
    if key != PROPAGATION_EDGES:
        return (bool(op.blocks) or op.spec.edges is not None) and all(same)
    used = {
        tensor.number
        for edges in attributes
        for edge in edges
        for tensor in (edge.source, edge.target)
        if not tensor.is_result
    }
    return all(number < len(same) and same[number] for number in used)
