"""Object code of several modules, and the state after failed compilation."""

import gc
from collections.abc import Callable
from traceback import walk_stack
from types import FrameType

import pytest

from shardir.backends.cpu.codegen.compiler import link
from shardir.backends.cpu.codegen.emission import BackgroundCompilation, CompilationUnit, emit
from shardir.backends.cpu.codegen.target import host_machine
from tests.process_control.signals import Interrupted, alarm

TEXT = "define double @{}(double %x) {{\n  ret double %x\n}}\n"
INVALID = "define double @f(double %x) { ret double %y }"


def texts(count: int) -> list[str]:
    return [TEXT.format(f"f{number}") for number in range(count)]


def _emit_forever() -> None:
    while True:
        emit([texts(200)], host_machine())


def _link_forever() -> None:
    codes = emit([texts(20)], host_machine())
    while True:
        link(codes, ["f0"], {})


def test_each_group_becomes_one_object() -> None:
    made = emit([texts(2), texts(1)], host_machine())
    assert [b"f0" in code for code in made] == [True, True]
    assert [b"f1" in code for code in made] == [True, False]


def test_a_module_is_destroyed_without_comparing_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing contexts would run Python code, so that another thread could end its module."""

    def fail_comparison(one: object, other: object) -> bool:
        raise AssertionError("this is a step of Python, in which threads change")

    first, second = (CompilationUnit(texts(1), host_machine()) for _ in range(2))
    monkeypatch.setattr(type(first._context), "__eq__", fail_comparison)
    assert second.code() == first.code()


def test_invalid_modules_can_be_destroyed_in_any_order() -> None:
    for _ in range(20):
        with pytest.raises(RuntimeError, match="LLVM IR parsing error"):
            emit([[*texts(2), INVALID], texts(1)], host_machine())
        with pytest.raises(RuntimeError, match="LLVM IR parsing error"):
            BackgroundCompilation([*texts(2), INVALID], host_machine())
        gc.collect(1)  # The modules are young.
    assert b"f0" in BackgroundCompilation(texts(2), host_machine()).code()


@pytest.mark.parametrize("work", [_emit_forever, _link_forever])
def test_a_signal_handler_never_interrupts_llvm(work: Callable[[], None]) -> None:
    modules_on_stack: list[str] = []

    def stop(_: int, frame: FrameType | None) -> None:
        modules_on_stack.extend(each.f_globals["__name__"] for each, _ in walk_stack(frame))
        raise Interrupted

    with pytest.raises(Interrupted), alarm(0.02, stop):
        work()
    assert modules_on_stack
    assert not [name for name in modules_on_stack if name.startswith("llvmlite")]
