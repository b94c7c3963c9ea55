"""The stage `Traced` of a jitted function, and the caches of all functions."""

from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import dlpack, stages


def step(x: Any, y: Any) -> Any:
    return {"sum": x + y}


def test_a_traced_function_describes_its_arguments_and_results() -> None:
    jitted = sd.jit(step, donate_argnums=1)
    traced = jitted.trace(np.ones(3, "f"), np.zeros(3, "f"))
    (x, y), named = traced.args_info
    assert (x.shape, x.dtype, x.donated, y.donated, named) == ((3,), np.float32, False, True, {})
    assert traced.fun_name == "step"
    assert traced.jaxpr.functions == traced.module.functions
    assert traced.donate_argnums == (1,)
    lowered = traced.lower()
    for stage in (lowered, lowered.compile()):
        assert stage.args_info == traced.args_info
        assert stage.donate_argnums == (1,)
    assert traced.out_info["sum"].shape == (3,)
    assert traced.out_tree.num_leaves == 1
    assert traced.in_tree.num_leaves == 2
    result = traced.lower(lowering_platforms=("cpu",)).compile()(np.ones(3, "f"), snp.ones(3))
    np.testing.assert_array_equal(result["sum"], [2, 2, 2])
    assert isinstance(jitted, stages.Wrapped)
    assert not isinstance(step, stages.Wrapped)
    assert repr(traced) == "<trace of step>"


def test_clear_caches_removes_the_programs_of_all_functions() -> None:
    functions = [sd.jit(lambda x: x + 1), sd.jit(lambda x: x * 2)]
    for each in functions:
        each(np.ones(3, "f"))
    assert [each.cache_info().currsize for each in functions] == [1, 1]
    sd.clear_caches()
    assert [each.cache_info().currsize for each in functions] == [0, 0]
    np.testing.assert_array_equal(functions[0](np.ones(2, "f")), [2, 2])


def test_environment_info_lists_versions_and_devices(capsys: Any) -> None:
    assert sd.print_environment_info() is None
    text = sd.print_environment_info(return_string=True)
    assert capsys.readouterr().out == f"{text}\n"
    assert str(text).startswith("shardir: ")
    assert f"numpy: {np.__version__}\n" in str(text)
    assert sd.process_indices() == [0]


def test_element_types_of_dlpack() -> None:
    assert all(dlpack.is_supported_dtype(each) for each in ("float32", "bool", snp.bfloat16))
    assert not dlpack.is_supported_dtype("M8")
