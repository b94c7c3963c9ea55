"""Reader: StableHLO text with Shardy's shardings to the IR.

Both forms of MLIR text, generic and pretty, are read, and values keep their names. Operations
without a counterpart become `opaque` operations that carry their text;
`shardir.ops.opaque.unknown_operations` lists them. Each call contains the body of its function, and
private functions that are called are removed. The program starts at @main if it exists.
"""

import shardir.stablehlo.reading.rules  # noqa: F401  declares what each operation is
from shardir.ir.module import Function, Module
from shardir.stablehlo.debug_attributes import DescribedModule
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.function import FunctionReader
from shardir.stablehlo.reading.module_symbols import ModuleSymbols
from shardir.stablehlo.reading.propagation_edges import DebugReader
from shardir.stablehlo.reading.syntax import MlirSource, split_modules as split_modules


def read(text: str, file: str = "<text>") -> Module:
    """Read a module; raise `ParseError` at the first error."""
    source = MlirSource(text, file)
    return _read(source, ModuleReader(source))


def read_described(text: str, file: str = "<text>") -> DescribedModule:
    """Read a module and the propagation edges of its operations and results."""
    source = MlirSource(text, file)
    reader = ModuleReader(source)
    debug = reader.debug = DebugReader(reader.shardings)
    module = _read(source, reader)
    return DescribedModule(module, debug.attributes_of(module))


def _read(source: MlirSource, reader: "ModuleReader") -> Module:
    try:
        return reader.read_module()
    except RecursionError:
        raise source.error("this text is nested too deeply", 0, 1) from None


class ModuleReader(ModuleSymbols):
    """Reads the functions of a module; with `debug`, also their debug attributes."""

    def __init__(self, source: MlirSource, *, whole: bool = False) -> None:
        super().__init__(source, whole=whole)
        self.debug: DebugReader | None = None
        self.functions_read: dict[str, FunctionReader] = {}

    def read_module(self) -> Module:
        self.declare(self.source.module().statements)
        called = self.called_functions()
        definitions = [
            written
            for name, written in self.functions.items()
            if written.body and not (name in called and written.visibility == "private")
        ]
        functions = [self.read_function(written) for written in definitions]
        self.device_counts.check(self.shardings.meshes.values())  # Shardings may add meshes.
        functions.sort(key=lambda function: function.name != "main")
        return Module(tuple(self.shardings.meshes.values()), tuple(functions))

    def read_function(self, written: records.FunctionRecord) -> Function:
        reader = self.functions_read[str(written.name)[1:]] = FunctionReader(
            self, written, self.debug
        )
        return reader.read_function()
