"""Functions built as LLVM text compute the expected values."""

import ctypes

import pytest

from shardir.backends.cpu.codegen.compiler import compile
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.codegen.target import host_machine


def float_expression(x: LLVMValue) -> LLVMValue:
    return 1.0 - 2.0 / (0.5 + (-x) * 3.0) + 4.0 * x


def integer_expression(x: LLVMValue) -> LLVMValue:
    return ~(10 - x) + 3 * (-x)


def test_python_numbers_combine_with_float_values() -> None:
    module = LLVMModule(host_machine())
    f = LLVMFunction(module, "f", ["double"], "double")
    f.ret(float_expression(f.params[0]))
    code = compile(host_machine(), module.text(), ["f"])
    compiled = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code["f"])
    assert compiled(1.5) == 1 - 2 / (0.5 - 1.5 * 3) + 6


def test_python_numbers_combine_with_integer_values() -> None:
    module = LLVMModule(host_machine())
    f = LLVMFunction(module, "f", ["i64"], "i64")
    f.ret(integer_expression(f.params[0]))
    code = compile(host_machine(), module.text(), ["f"])
    compiled = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code["f"])
    assert compiled(4) == ~6 - 12


@pytest.mark.parametrize("index", [0, 2])
def test_constant_tables_are_addressable(index: int) -> None:
    module = LLVMModule(host_machine())
    module.table("numbers", "i64", [5, 7, -9])
    module.table("numbers", "i64", [5, 7, -9])
    f = LLVMFunction(module, "f", ["i64"], "i64")
    table = LLVMValue("@numbers", "ptr", f)
    f.ret(f.load(f.offset(table, f.params[0], "i64"), "i64"))
    code = compile(host_machine(), module.text(), ["f"])
    compiled = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code["f"])
    assert compiled(index) == [5, 7, -9][index]
