"""StableHLO text of partitioned programs for PJRT."""

from collections.abc import Mapping
from dataclasses import replace

from shardir import ops as ops  # declares the operations
from shardir.errors import ShardirError
from shardir.ir.module import Module
from shardir.ir.operation import OPS
from shardir.op_rules.rule_table import missing_rule
from shardir.stablehlo.printer import show
from shardir.stablehlo.writing.decompositions import CUSTOM_CALL_OPERATIONS

PIPELINE = "expand-rbg-keys,inline,widen-small-dtypes,dce"
"""The passes that a partitioned module goes through before XLA compiles it."""

_NO_HOST_FUNCTION = "PJRT programs call no functions of Python"
_NO_DECOMPOSITION = "StableHLO has no such decomposition"
_UNKNOWN = "the reader preserves this operation as text only"
UNSUPPORTED_OPERATIONS = {
    **{
        OPS[name]: _NO_HOST_FUNCTION
        for name in ("callback", "pure-callback", "inspect-sharding", "pipeline-call")
    },
    **{OPS[name]: _NO_DECOMPOSITION for name in CUSTOM_CALL_OPERATIONS},
    OPS["opaque"]: _UNKNOWN,
}
"""The operations that this backend refuses, with the reason."""


class UnsupportedByPJRTError(ShardirError, NotImplementedError):
    """An operation that programs on devices of PJRT cannot contain."""

    def __init__(self, target: str, op: str, where: str, line: str, reason: str) -> None:
        super().__init__(
            f"{op}{where}: backend {target!r} does not support the operation\n"
            f"  | {line}\n"
            f"{reason}; run the program on devices('cpu'), without backend={target!r}"
        )


def check_operations(module: Module) -> None:
    """Raise `UnsupportedByPJRTError` for the first operation that the backend does not support."""
    for op in module.main.body.walk():
        if (reason := UNSUPPORTED_OPERATIONS.get(op.spec)) is not None:
            raise missing_rule(UnsupportedByPJRTError, op, "pjrt", reason)


def write_program(module: Module, overwritten: Mapping[int, int]) -> str:
    """Return the text of the module's first function, with locations in the user's program.

    `overwritten` has the result that overwrites each donated argument. Raises `ExportError` for
    operations with options that StableHLO cannot express.
    """
    check_operations(module)
    main = replace(module.main, name="main")  # The name that XLA requires.
    alone = replace(module, functions=(main,))
    return show(alone, locations=True, for_xla=True, overwritten=overwritten)
