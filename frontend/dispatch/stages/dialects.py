"""The text of programs in the dialects of JAX: `as_text(dialect=...)`."""

from shardir.frontend.errors import ArgumentError
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.ir.module import Module
from shardir.passes.batching.key_words import expand_rbg_keys
from shardir.stablehlo.printer import show
from shardir.text.printer import print_module


def stablehlo_text(module: Module, *, locations: bool = False) -> str:
    """Return the program as StableHLO text that XLA runs.

    Raises `ExportError` for operations that StableHLO cannot express.
    """
    return show(expand_rbg_keys(module), locations=locations, for_xla=True)


def dialect_text(module: Module, dialect: str, *, locations: bool) -> str:
    """Return the program in a dialect: "shardir" is the IR of shardir, "stablehlo" is MLIR.

    Raises `ArgumentError` for other dialects.
    """
    name = dialect if isinstance(dialect, str) else None
    if name == "shardir":
        return print_module(module, locations=locations)
    if name == "stablehlo":
        return stablehlo_text(module, locations=locations)
    reason = (
        "XLA makes the text 'hlo' from StableHLO; read that of a JAX program with explain_xla"
        if name == "hlo"
        else "the dialects are 'shardir', which is the default, and 'stablehlo'"
    )
    raise ArgumentError(with_location(f"as_text has no dialect {brief(dialect)}: {reason}"))
