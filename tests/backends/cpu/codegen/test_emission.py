"""Object code of several modules, and what is left where there is none."""

import gc
from collections.abc import Callable
from traceback import walk_stack
from types import FrameType

import pytest

from shardir.backends.cpu.codegen.compiler import link
from shardir.backends.cpu.codegen.emission import BackgroundCompilation, CompilationUnit, emit
from tests.process_control.signals import Interrupted, alarm

TEXT = "define double @{}(double %x) {{\n  ret double %x\n}}\n"
BAD = "define double @f(double %x) { ret double %y }"


def texts(count: int) -> list[str]:
    return [TEXT.format(f"f{number}") for number in range(count)]


def _emit_for_ever() -> None:
    while True:
        emit([texts(200)])


def _link_for_ever() -> None:
    codes = emit([texts(20)])
    while True:
        link(codes, ["f0"], {})


def test_groups_become_object_code() -> None:
    made = emit([texts(2), texts(1)])
    assert [b"f0" in code for code in made] == [True, True]
    assert [b"f1" in code for code in made] == [True, False]


def test_a_module_ends_without_a_look_at_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others end meanwhile."""

    def compared(one: object, other: object) -> bool:
        raise AssertionError("this is a step of Python, in which threads change")

    first, second = CompilationUnit(texts(1)), CompilationUnit(texts(1))
    monkeypatch.setattr(type(first._context), "__eq__", compared)
    assert second.code() == first.code()


def test_what_is_left_of_a_bad_module_is_closed_in_any_order() -> None:
    for _ in range(20):
        with pytest.raises(RuntimeError, match="LLVM IR parsing error"):
            emit([[*texts(2), BAD], texts(1)])
        with pytest.raises(RuntimeError, match="LLVM IR parsing error"):
            BackgroundCompilation([*texts(2), BAD])
        gc.collect()
    assert b"f0" in BackgroundCompilation(texts(2)).code()


@pytest.mark.parametrize("work", [_emit_for_ever, _link_for_ever])
def test_a_signal_finds_the_main_thread_outside_of_llvm(work: Callable[[], None]) -> None:
    inside: list[str] = []

    def stop(_: int, frame: FrameType | None) -> None:
        inside.extend(each.f_globals["__name__"] for each, _ in walk_stack(frame))
        raise Interrupted

    with pytest.raises(Interrupted), alarm(0.02, stop):
        work()
    assert inside
    assert not [name for name in inside if name.startswith("llvmlite")]
