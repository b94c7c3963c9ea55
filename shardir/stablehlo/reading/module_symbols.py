"""The functions, meshes, aliases and types that a module of StableHLO text declares.

`Locations` resolves the source locations of operations, and `DeviceCounts` checks the numbers of
replicas and partitions.
"""

import re
from collections.abc import Iterable

from lark import Token

from shardir.errors import count_noun
from shardir.ir.mesh import Mesh
from shardir.ir.module import Loc
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.shardings import ShardingResolver
from shardir.stablehlo.reading.syntax import MlirSource
from shardir.stablehlo.reading.types import TypeParser

_FILE_LINE_COLUMN = re.compile(r'"((?:[^"\\]|\\.)*)":(\d{1,9}):(\d{1,9})')
_ALIAS = re.compile(r"#[\w$.]+")
_REPLICAS = "mhlo.num_replicas"
_PARTITIONS = "mhlo.num_partitions"


class Locations:
    """Resolves locations, including aliases that are defined at the end of the file."""

    def __init__(self) -> None:
        self.aliases: dict[str, str] = {}
        self._known: dict[str, Loc | None] = {}

    def read(self, text: str) -> Loc | None:
        """Return the first file and line in a location, the innermost call first."""
        if text not in self._known:
            self._known[text] = None  # A recursive alias has no location.
            match = _FILE_LINE_COLUMN.search(text)
            if match:
                self._known[text] = Loc(match[1], int(match[2]), int(match[3]))
            else:
                locs = map(self.alias, _ALIAS.findall(text))
                self._known[text] = next((loc for loc in locs if loc is not None), None)
        return self._known[text]

    def alias(self, name: str) -> Loc | None:
        return self.read(self.aliases[name]) if name in self.aliases else None


class DeviceCounts:
    """The numbers of devices that the attributes of modules state.

    JAX states `mhlo.num_partitions`, the number of devices over which the module is partitioned,
    and `mhlo.num_replicas`, the number of copies of the module, each with its own arguments.
    """

    def __init__(self, types: TypeParser) -> None:
        self.types = types
        self._partitions: list[tuple[int, Token]] = []

    def read(self, attributes: Iterable[records.AttributeRecord]) -> None:
        """Read the attributes of a module; raise `ParseError` for a program with replicas."""
        for entry in attributes:
            key = self.types.string(entry.key)
            if key not in (_REPLICAS, _PARTITIONS):
                continue
            count = self.types.integer(entry.value)
            if count < 1:
                raise self.types.source.fail(f"{key} is at least 1", entry.key)
            if key == _PARTITIONS:
                self._partitions.append((count, entry.key))
            elif count > 1:
                raise self.types.source.fail(
                    f"each of {count} replicas runs this program on its own arguments, and the "
                    "reader reads programs of global arrays; print the program before partition, "
                    "or trace it with jit and shardings instead of replicas",
                    entry.key,
                )

    def check(self, meshes: Iterable[Mesh]) -> None:
        """Raise `ParseError` unless the meshes have as many devices as there are partitions."""
        for mesh in meshes:
            for count, at in self._partitions:
                if mesh.axes and mesh.size != count:
                    raise self.types.source.fail(
                        f"the mesh @{mesh.name} has {count_noun(mesh.size, 'device')}, and the "
                        f"module {count} "
                        f"partitions; state {_PARTITIONS} = {mesh.size}, or change the mesh",
                        at,
                    )
                ids = mesh.device_ids or ()
                if mesh.is_maximal and max(ids, default=0) >= count:
                    raise self.types.source.fail(
                        f"the mesh @{mesh.name} is the device {ids[0]}, and the module has {count} "
                        f"partitions; state a larger {_PARTITIONS}, or change the mesh",
                        at,
                    )


class ModuleSymbols:
    """The state that the functions of a module share."""

    def __init__(self, source: MlirSource, *, whole: bool = False) -> None:
        self.source = source
        self.keep_opaque = whole
        """True if an operation that would become several operations stays opaque."""
        self.types = TypeParser(source)
        self.shardings = ShardingResolver(self.types)
        self.device_counts = DeviceCounts(self.types)
        self.functions: dict[str, records.FunctionRecord] = {}
        self.aliases: dict[str, str] = {}
        self.locations = Locations()
        self._operations: dict[str, int] = {}

    def declare(self, statements: list[object]) -> None:
        """Collect meshes, functions and aliases, in any order."""
        for statement in statements:
            match statement:
                case records.NestedModuleRecord():
                    self.declare(statement.statements)
                    if statement.attrs is not None:
                        self.device_counts.read(statement.attrs.entries)
                case records.MeshRecord():
                    self.shardings.declare_mesh(statement)
                case records.AliasRecord():
                    text = str(statement.value) if isinstance(statement.value, Token) else ""
                    self.aliases[str(statement.name)] = text
                    self.locations.aliases[str(statement.name)] = text
                case records.FunctionRecord():
                    self.declare_function(statement)
                case records.OpRecord():
                    self.declare_generic(statement)

    def declare_function(self, function: records.FunctionRecord) -> None:
        name = self.types.string(function.name)
        if name in self.functions:
            raise self.source.fail(f"two functions are called @{name}", function.name)
        self.functions[name] = function

    def declare_generic(self, op: records.OpRecord) -> None:
        """Declare a module, mesh or function in generic form."""
        name = op.name.strip('"')
        attributes = [
            entry
            for part in op.parts
            for dict_ in (part.dict if isinstance(part, records.PropertiesRecord) else part,)
            if isinstance(dict_, records.DictRecord)
            for entry in dict_.entries
        ]
        entries = {entry.key.strip('"'): entry.value for entry in attributes}
        blocks = [
            b for part in op.parts if isinstance(part, records.RegionsRecord) for b in part.blocks
        ]
        symbol = entries.get("sym_name")
        if name == "builtin.module" and len(blocks) == 1:
            self.declare(blocks[0].statements)
            self.device_counts.read(attributes)
        elif name == "sdy.mesh" and symbol is not None and isinstance(entries.get("mesh"), Token):
            self.shardings.declare_mesh(records.MeshRecord(symbol, entries["mesh"]))
        elif name == "func.func" and symbol is not None and len(blocks) == 1:
            self.declare_function(_function_of_generic(op.name, symbol, entries, blocks[0]))
        else:
            raise self.source.fail("a module may contain only meshes and functions", op.name)

    def called_functions(self) -> set[str]:
        """Return the names of all functions that are called."""
        result: set[str] = set()

        def walk(node: object) -> None:
            if isinstance(node, Token):
                if node.type == "SYMBOL":
                    result.add(self.types.string(node))
            elif isinstance(node, records.FunctionRecord):
                walk(node.body)
            elif isinstance(node, tuple | list):
                for part in node:
                    walk(part)

        for function in self.functions.values():
            walk(function)
        return result

    def count_operations_of(self, function: records.FunctionRecord) -> int:
        """Return the number of operations of a function, with those of its calls.

        Every reference to a function counts as a call. A recursive call counts as zero, because the
        reader rejects recursion.
        """
        name = str(function.name)
        if name not in self._operations:
            self._operations[name] = 0
            self._operations[name] = self._count_operations(function.body)
        return self._operations[name]

    def _count_operations(self, node: object) -> int:
        if isinstance(node, Token):
            callee = self.functions.get(self.types.string(node)) if node.type == "SYMBOL" else None
            return 0 if callee is None else self.count_operations_of(callee)
        if not isinstance(node, tuple | list):
            return 0
        return isinstance(node, records.OpRecord) + sum(map(self._count_operations, node))

    def resolve_location(self, token: Token | None) -> Loc | None:
        return None if token is None else self.locations.read(str(token))


def _function_of_generic(
    at: Token, name: Token, entries: dict[str, object], body: records.BlockRecord
) -> records.FunctionRecord:
    """Return a function in generic form as a record of the pretty form."""
    stated = entries.get("function_type")
    types = stated.results if isinstance(stated, records.FunctionTypeRecord) else []
    visibility = entries.get("sym_visibility")

    def dicts(key: str, count: int) -> list[records.DictRecord | None]:
        lists = entries.get(key)
        if not isinstance(lists, records.ListsRecord):
            return [None] * count
        return [
            item if isinstance(item, records.DictRecord) else None for item in lists.lists[0].items
        ]

    params = [
        records.ParamRecord(param.name, param.type, attrs)
        for param, attrs in zip(body.params, dicts("arg_attrs", len(body.params)), strict=False)
    ]
    results = [
        records.ParamRecord(None, type, attrs)
        for type, attrs in zip(types, dicts("res_attrs", len(types)), strict=False)
    ]
    word = Token("VISIBILITY", visibility.strip('"')) if isinstance(visibility, Token) else None
    return records.FunctionRecord(at, word, name, params, results, body)
