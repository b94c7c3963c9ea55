"""Bytecode of StableHLO, which jaxlib alone reads and writes.

`bytecode_to_text` returns the StableHLO text, with locations, of bytes that `jax.export` or MLIR
wrote; `text_to_bytecode` returns the portable bytecode of a text, as `jax.export` writes it.
"""

from typing import Any

from shardir.errors import ShardirError

BYTECODE_SIGNATURE = b"ML\xefR"
"""The first bytes of MLIR's bytecode."""


class BytecodeError(ShardirError, ValueError):
    """Bytecode that cannot be read, or text that jaxlib does not accept."""


def bytecode_to_text(data: bytes, file: str) -> str:
    """Return the StableHLO text of bytecode; raise `BytecodeError` without jaxlib, and for
    bytecode of another version.
    """
    try:
        # An optional dependency.
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import stablehlo
    except ImportError:
        raise BytecodeError(
            f"{file} is bytecode of MLIR, which only jaxlib reads, and jaxlib is not installed; "
            "pip install 'shardir[jax]', or write the program as text (as_text() in JAX)"
        ) from None
    context = _make_context()
    messages: list[str] = []
    try:
        with context, context.attach_diagnostic_handler(lambda each: _note(messages, each.message)):
            try:
                module = stablehlo.deserialize_portable_artifact(context, data)
            except ValueError:  # It is bytecode of StableHLO itself, not of the portable VHLO.
                module = ir.Module.parse(data)
        text: str = module.operation.get_asm(enable_debug_info=True)
    except (ir.MLIRError, ValueError) as error:
        reason = (messages or str(error).splitlines() or [type(error).__name__])[0]
        raise BytecodeError(
            f"jaxlib cannot read the bytecode {file}: {reason}; write it with the installed "
            "version of JAX, or as text (as_text() in JAX)"
        ) from None
    return text


def text_to_bytecode(text: str) -> bytes:
    """Return the portable bytecode of a text, which may contain Shardy's shardings.

    Raises `BytecodeError` without jaxlib, and for operations that its version does not have.
    """
    try:
        # An optional dependency.
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import stablehlo
    except ImportError:
        raise BytecodeError(
            "only jaxlib writes bytecode, and jaxlib is not installed; pip install "
            "'shardir[jax]', or use the text of the program"
        ) from None
    context = _make_context()
    messages: list[str] = []
    try:
        with context, context.attach_diagnostic_handler(lambda each: _note(messages, each.message)):
            made: bytes = stablehlo.serialize_portable_artifact(
                ir.Module.parse(text), stablehlo.get_current_version(), allow_other_dialects=True
            )
    except (ir.MLIRError, ValueError) as error:
        reason = (messages or str(error).splitlines() or [type(error).__name__])[0]
        raise BytecodeError(
            f"jaxlib cannot write the bytecode: {reason}; use the text of the program"
        ) from None
    return made


def _make_context() -> Any:
    """Return a context of MLIR with the dialects of JAX's programs."""
    from jaxlib.mlir import ir  # An optional dependency.
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo

    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(context)
    return context


def _note(messages: list[str], message: str) -> bool:
    """Store a message of the parser, which is not printed then."""
    messages.append(message)
    return True
