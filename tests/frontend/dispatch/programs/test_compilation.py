"""The backend that compiles a program: that of this process, or the link to other processes."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.dispatch.programs import compilation, nonfinite_check

MODULE = sd.jit(lambda x: x + 1).lower(np.zeros(3, np.float32)).compile().module


class Link:
    """A link to other processes that records what it compiles."""

    def __init__(self) -> None:
        self.compiled: list[tuple[Any, ...]] = []

    def compile(self, module: Any, owners: Any, passes: Any, checks_inputs: bool) -> Any:
        self.compiled.append((owners, passes is not None, checks_inputs))


def device_of(process: int) -> Any:
    return SimpleNamespace(backend="cpu", process_index=process)


@pytest.mark.parametrize("isolated", [False, True])
def test_programs_on_devices_of_other_processes_are_compiled_by_the_link(
    monkeypatch: pytest.MonkeyPatch, isolated: bool
) -> None:
    link = Link()
    group = SimpleNamespace(link=link, index=1)
    monkeypatch.setattr(compilation, "process_group", lambda: group)
    with sd.config(isolated=isolated, check_replicated_inputs=False):
        program: Any = compilation.compile_module(MODULE, [device_of(1), device_of(1)])
        assert link.compiled == []
        assert program is not None
        compilation.compile_module(MODULE, [device_of(0), device_of(1)])
        assert link.compiled == [((0, 1), not isolated, False)]
    monkeypatch.setattr(compilation, "is_available", lambda: False)
    compilation.compile_module(MODULE, [device_of(0), device_of(1)])
    assert link.compiled[1:] == [((0, 1), False, sd.config.check_replicated_inputs)]


def test_results_of_other_processes_are_not_searched_for_nan() -> None:
    def read() -> None:
        raise AssertionError

    type = MODULE.main.body.returns[0].type
    remote: Any = SimpleNamespace(type=type, is_fully_addressable=False, read=read)
    nonfinite_check.check_results(nonfinite_check.NAN_CHECK, [remote], MODULE.main, [])


def test_programs_of_other_devices_are_compiled_by_their_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = SimpleNamespace(
        pipeline="dce", compile_for=lambda module, ids, results: (str(module), ids)
    )
    monkeypatch.setattr(compilation, "get_device_backend", {"gpu": backend}.__getitem__)
    chosen: Any = [SimpleNamespace(backend="gpu", id=id) for id in (3, 1)]
    program: Any = compilation.compile_module(MODULE, chosen)
    assert program == (str(MODULE), [3, 1])


def test_no_backend_is_prepared_without_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[str] = []
    backend = SimpleNamespace(prepare=lambda: prepared.append("cpu"))
    monkeypatch.setattr(compilation, "get_backend", lambda platform: backend)
    for available in (True, False):
        monkeypatch.setattr(compilation, "is_available", lambda available=available: available)
        compilation.prepare_backend("cpu")
    assert prepared == ["cpu"]
