"""`remat-layers`: values of layers are computed again, by policy and layer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir import nn, ops
from shardir.errors import PipelineError
from shardir.passes import Pipeline
from shardir.passes.autodiff.phases import is_recomputed
from shardir.passes.rematerialization.remat_layers import count_layers
from shardir.sharding import NamedSharding, PartitionSpec as P
from shardir.text.parser import parse
from shardir.verify.verifier import verify

LAYERS, WIDTH, HIDDEN, LENGTH = 5, 16, 64, 32


def draw(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) / 8


def loss(layers: Any, x: Any) -> Any:
    for layer in layers:
        scores = nn.softmax(jnp.einsum("bqd,bkd->bqk", x @ layer["q"], x))
        x = x + scores @ x
        x = x + jnp.tanh(x @ layer["up"]) @ layer["down"]
    return jnp.mean(x * x)


def lower(devices: int) -> tuple[Any, tuple[Any, ...]]:
    mesh = sd.make_mesh((devices,), ("data",))
    shapes = {"q": (WIDTH, WIDTH), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    layers = [{name: draw(*shape) for name, shape in shapes.items()} for _ in range(LAYERS)]
    x = sd.device_put(draw(8, LENGTH, WIDTH), NamedSharding(mesh, P("data")))
    return sd.jit(sd.grad(loss)).lower(layers, x), (layers, x)


def repeated_products(compiled: Any) -> int:
    found: Sequence[Any] = compiled.module.main.body.ops
    return sum(op.spec is ops.dot and is_recomputed(op) for op in found)


@pytest.mark.parametrize("devices", [1, 2])
def test_less_memory_is_used_the_more_is_computed_again(devices: int) -> None:
    lowered, args = lower(devices)
    compiled = lowered.compile()
    assert count_layers(compiled.module) == LAYERS - 1
    variants = ("{save=dots}", "{count=2}", "")
    chosen = [lowered.compile(passes=f"default,remat-layers{each}") for each in variants]
    for each in chosen:
        verify(each.module)
        for got, want in zip(
            sd.tree.leaves(each(*args)), sd.tree.leaves(compiled(*args)), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    # The gradient needs the scores' product and the first of the block of a layer again.
    products = [repeated_products(each) for each in chosen]
    assert products[0] == 0
    assert 0 < products[1] == 2 * products[2] / (LAYERS - 1)
    peaks = [each.simulate("a100x8").memory.peak for each in (compiled, *chosen)]
    assert min(peaks[:3]) > peaks[3]
    assert peaks[0] > max(peaks[1:])
    executed = [each.memory_analysis().host_peak_memory_in_bytes for each in (compiled, chosen[-1])]
    assert executed[0] > 1.5 * executed[1]


STORY = Path(__file__).parents[2] / "stories" / "remat-layers.ir"


def run_on_story(*changes: tuple[str, str]) -> list[str]:
    """Return the operations that the pass makes of the program of the story, with changes."""
    text = STORY.read_text("utf-8").partition("// =====")[0]
    for old, new in changes:
        text = text.replace(old, new)
    module = Pipeline.parse("remat-layers")(parse(text))
    verify(module)
    return [str(op) for op in module.main.body.ops]


def test_operations_that_use_a_gradient_use_repeated_values_too() -> None:
    """An operation of an optimizer does not state that it computes a gradient."""
    last = "%o = mul(%h1.grad, %a1) : f32[4, 8]\n  return %o"
    assert run_on_story(("return %h1.grad", last))[-1].startswith("%o = mul(%h1.grad, %a1.1)")


def test_values_of_callbacks_are_saved() -> None:
    ops = run_on_story(*((f"tanh(%p{i})", f'pure-callback(%p{i}, function="f")') for i in "123"))
    assert sum("pure-callback" in op for op in ops) == 3
    assert any(op.startswith("%p1.1 = dot(") for op in ops)


def test_wrong_options_are_refused() -> None:
    lowered, _ = lower(2)
    with pytest.raises(PipelineError) as raised:
        lowered.compile(passes=f"default,remat-layers{{count={LAYERS}}}")
    assert str(raised.value) == (
        "remat-layers cannot compute 5 layers of @loss again; it has 4 before the last one"
    )
    with pytest.raises(PipelineError) as raised:
        Pipeline.parse("default,remat-layers{save=names}")
    assert str(raised.value) == (
        "option 'save' of pass 'remat-layers' cannot be 'names'; it is one of nothing, dots, "
        "dots-without-batch"
    )
    once = sd.jit(sd.grad(lambda w: jnp.mean(jnp.tanh(w)))).lower(draw(4, 4))
    with pytest.raises(PipelineError) as raised:
        once.compile(passes="default,remat-layers")
    assert str(raised.value) == (
        "remat-layers finds no repeated layers in @lambda; use remat{budget=2GiB}, or checkpoint "
        "in the body of a loop over layers"
    )
