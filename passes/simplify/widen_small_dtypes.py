"""Write operations on small dtypes as operations on bytes and wider dtypes.

before: `%t = transpose(%x, perm=[1, 0]) : i4[3, 2]`
after:  `%1 = convert(%0) : u8[2, 3]`, `%t = transpose(%1, perm=[1, 0]) : u8[3, 2]`

Each value of a small dtype becomes its bit patterns in u8: operations that move elements move
bytes, all others convert to a wider dtype and back (`shardir.op_rules.widening`). The parameters
and results of functions keep their dtypes, and so do operands of callbacks. Backends therefore need
only reinterpretations between small dtypes and u8.
"""

from dataclasses import dataclass, replace

import numpy as np

from shardir import ops
from shardir.errors import OperationTypeError
from shardir.ir.builder import Builder, UniqueNames, infer_types
from shardir.ir.dtypes import (
    DTYPE_INFO,
    NUMPY_DTYPES,
    SMALL_DTYPES,
    SMALL_FLOATS,
    UNSIGNED_BY_BITS,
)
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.operation import Dense
from shardir.op_rules.small_dtype_codes import code_of_number, number_of_code
from shardir.op_rules.widening import (
    computes_small,
    extension_of,
    finite_range,
    has_fixed_dtypes,
    result_offset,
    saturates,
    widened_dtype,
    widened_result_type,
)
from shardir.ops.communication.async_collectives import is_started
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import all_values, rebuild_functions, used_names


@dataclass(frozen=True)
class WidenSmallDtypes(Pass, name="widen-small-dtypes"):
    """Compute floats of at most 8 bits and integers of at most 4 bits in wider dtypes."""

    def __call__(self, module: Module) -> Module:
        return rebuild_functions(module, _widen_function)


def _widen_function(function: Function) -> Function:
    if not any(value.type.dtype in SMALL_DTYPES for value in all_values(function.body)):
        return function
    return replace(function, body=_Widener(used_names(function)).body(function.body))


def _is_small(value: Value) -> bool:
    return value.type.dtype in SMALL_DTYPES


class _Widener:
    """Rebuilds the blocks of a function."""

    def __init__(self, names: UniqueNames) -> None:
        self.names = names
        self.new: dict[Value, Value] = {}
        """The replacement of each value of a small dtype: its codes."""

    def body(self, block: Block) -> Block:
        """Return the outermost block, whose parameters and results keep their dtypes."""
        b = Builder(self.names)
        for param in block.params:
            if _is_small(param):
                self.new[param] = self.load(b, param)
        self.ops(b, block)
        returns = [self.store(b, v) if _is_small(v) else self.get(v) for v in block.returns]
        return Block(block.params, tuple(b.ops), tuple(returns))

    def block(self, block: Block) -> Block:
        """Return an inner block on codes."""
        b = Builder(self.names)
        params = tuple(map(self.define, block.params))
        self.ops(b, block)
        return Block(params, tuple(b.ops), tuple(map(self.get, block.returns)))

    def ops(self, b: Builder, block: Block) -> None:
        for op in block.ops:
            b.loc, b.why = op.loc, op.why
            self.op(b, op)

    def get(self, value: Value) -> Value:
        return self.new.get(value, value)

    def define(self, value: Value) -> Value:
        """Return the codes that stand for a value that is defined here."""
        if not _is_small(value):
            return self.get(value)
        self.new[value] = replace(value, type=value.type.with_dtype("u8"))
        return self.new[value]

    def load(self, b: Builder, value: Value) -> Value:
        """Return the codes of a value of a small dtype."""
        bits = DTYPE_INFO[value.type.dtype].bits
        unsigned = value.type.with_dtype(UNSIGNED_BY_BITS[bits])
        if value.type != unsigned:
            value = b.bitcast(value, result=unsigned)
        return value if bits == 8 else b.convert(value, result=value.type.with_dtype("u8"))

    def store(self, b: Builder, value: Value) -> Value:
        """Return a value of a small dtype from its codes."""
        code, bits = self.new[value], DTYPE_INFO[value.type.dtype].bits
        unsigned = value.type.with_dtype(UNSIGNED_BY_BITS[bits])
        if bits < 8:
            code = b.convert(code, result=unsigned)
        return code if value.type == unsigned else b.bitcast(code, result=value.type)

    def op(self, b: Builder, op: Op) -> None:
        if not any(map(_is_small, op.tensors)) and not op.blocks:
            operands = tuple(map(self.get, op.operands))
            b.append(op if operands == op.operands else replace(op, operands=operands))
        elif op.spec is ops.constant:
            self.constant(b, op)
        elif op.spec is ops.convert:
            self.convert(b, op)
        elif has_fixed_dtypes(op):
            self.opaque(b, op)
        elif computes_small(op):
            self.compute(b, op)
        else:
            self.move(b, op)

    def move(self, b: Builder, op: Op) -> None:
        """Append an operation that moves elements, or that has blocks, on codes."""
        if op.spec is ops.bitcast:
            (x,), to = map(self.get, op.operands), op.result.type
            if x.type == (to.with_dtype("u8") if _is_small(op.result) else to):
                self.new[op.result] = x
                return
        operands = tuple(map(self.get, op.operands))
        blocks = tuple(map(self.block, op.blocks))
        results = tuple(map(self.define, op.results))
        b.append(replace(op, operands=operands, results=results, blocks=blocks))

    def constant(self, b: Builder, op: Op) -> None:
        dtype, value = op.result.type.dtype, op.attrs["value"]
        mask = (1 << DTYPE_INFO[dtype].bits) - 1
        if isinstance(value, Dense):
            code: object = Dense(value.array.view(np.uint8) & np.uint8(mask))
        else:
            with np.errstate(all="ignore"):
                number = float(value) if dtype in SMALL_FLOATS else int(value)
                code = int(np.asarray(number).astype(NUMPY_DTYPES[dtype]).view(np.uint8)) & mask
        b.append(replace(op, results=(self.define(op.result),), attrs={"value": code}))

    def convert(self, b: Builder, op: Op) -> None:
        (x,), (result,) = op.operands, op.results
        number = self.get(x)
        if _is_small(x):
            if x.type == result.type:
                self.new[result] = number
                return
            number = number_of_code(b, number, x.type.dtype, result.type.dtype)
        else:
            number = code_of_number(b, number, result.type.dtype)
        self.new[result] = self.rename_to_result(b, number, result)

    def rename_to_result(self, b: Builder, value: Value, result: Value) -> Value:
        """Return a value that was just computed under the name and with the sharding of the result
        that it replaces."""
        last = b.ops[-1] if b.ops else None
        if last is None or last.results != (value,):
            return value
        name = replace(result, type=value.type)
        b.ops[-1] = replace(last, results=(name,))
        return name

    def opaque(self, b: Builder, op: Op) -> None:
        operands = [self.store(b, v) if _is_small(v) else self.get(v) for v in op.operands]
        b.append(replace(op, operands=tuple(operands)))
        for result in op.results:
            if _is_small(result):
                self.new[result] = self.load(b, result)

    def compute(self, b: Builder, op: Op) -> None:
        """Append an operation on wider operands, and the conversions of its results."""
        if is_started(op):
            raise OperationTypeError(
                f"{op.name} of {op.result.type} cannot be widened, because it ends in another "
                "operation; run this program without the pass overlap"
            )
        extension = extension_of(op)
        operands: list[Value] = []
        for operand in op.operands:
            value, dtype = self.get(operand), operand.type.dtype
            if _is_small(operand):
                value = self.widen(b, value, dtype, widened_dtype(dtype, extension))
            operands.append(value)
        types = tuple(widened_result_type(op, value.type) for value in op.results)
        stated = types[0] if len(types) == 1 else types
        if infer_types(op.spec, operands, stated, op.attrs) != types:
            raise OperationTypeError(f"{op.name} cannot run on {op.result.type} through {types[0]}")
        results = tuple(
            replace(value, type=type, name=self.names.fresh(value.name))
            if type != value.type
            else value
            for value, type in zip(op.results, types, strict=True)
        )
        b.append(replace(op, operands=tuple(operands), results=results))
        for old, made in zip(op.results, results, strict=True):
            if made is not old and not _is_small(old):
                self.new[old] = self.rename_to_result(b, b.convert(made, result=old.type), old)
            elif _is_small(old):
                code = code_of_number(b, self.adjust(b, op, made, old.type.dtype), old.type.dtype)
                self.new[old] = self.rename_to_result(b, code, old)

    def widen(self, b: Builder, code: Value, dtype: str, to: str) -> Value:
        """Return operands of a small dtype in a wider one; integers may be extended with zeros or
        with the highest bit instead of their sign."""
        if dtype in SMALL_FLOATS:
            return number_of_code(b, code, dtype, to)
        same_bits = {"u8": "u", "i8": "i"}[to] + str(DTYPE_INFO[dtype].bits)
        return number_of_code(b, code, same_bits, to)

    def adjust(self, b: Builder, op: Op, made: Value, dtype: str) -> Value:
        """Return a result on the wider dtype, limited to numbers of the small dtype."""
        if offset := result_offset(op):
            made = b.sub(made, b.full(offset, made.type))
        limits = finite_range(dtype) if saturates(op) else None
        if limits is not None:
            low, high = (b.full(limit, made.type) for limit in limits)
            made = b.minimum(b.maximum(made, low), high)
        return made
