"""`split-batch` and `accumulate-microbatches`: a step in a loop over parts of its batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given

import shardir as sd
import shardir.numpy as jnp
from shardir import debug, io_callback, lax, nn, ops, random
from shardir.errors import PipelineError, ShardirError
from shardir.interpret.interpreter import run
from shardir.ir.module import Module, Op
from shardir.passes import Pipeline
from shardir.passes.microbatching.batch_dimensions import find_batch
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.sharding import NamedSharding, PartitionSpec as P
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.programs.strategies import modules

WIDTH, HEADS, HIDDEN, WORDS, LAYERS = 16, 2, 32, 11, 2


def passes(count: int) -> str:
    return f"split-batch{{microbatches={count}}},default,accumulate-microbatches"


def draw(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) / 4


def loops(compiled: Any) -> list[Op]:
    return [op for op in compiled.module.main.body.ops if op.spec is ops.scan]


def compare(function: Callable[..., Any], *args: Any, count: int = 2, loop_count: int = 1) -> Any:
    """Return the accumulated program, whose results must be those of the function."""
    lowered = sd.jit(function).lower(*args)
    compiled = lowered.compile(passes=passes(count))
    assert [op.attrs["length"] for op in loops(compiled)] == [count] * loop_count
    verify(compiled.module)
    for got, want in zip(
        sd.tree.leaves(compiled(*args)), sd.tree.leaves(lowered.compile()(*args)), strict=True
    ):
        assert got.sharding == want.sharding
        np.testing.assert_allclose(
            np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=2e-5, atol=1e-6
        )
    return compiled


def transformer_loss(params: Any, tokens: Any, targets: Any) -> Any:
    x = params["embedding"][tokens]
    for layer in params["layers"]:
        q, k, v = (jnp.einsum("bsd,dhe->bshe", x, layer[name]) for name in "qkv")
        x = x + jnp.einsum(
            "bqhe,hed->bqd", nn.dot_product_attention(q, k, v, is_causal=True), layer["o"]
        )
        x = x + jnp.tanh(x @ layer["up"]) @ layer["down"]
    words = nn.log_softmax(x @ params["embedding"].T)
    return -jnp.mean(jnp.take_along_axis(words, targets[..., None], axis=-1))


def transformer_step(params: Any, tokens: Any, targets: Any) -> Any:
    value, grads = sd.value_and_grad(transformer_loss)(params, tokens, targets)
    return sd.tree.map(lambda p, g: p - g, params, grads), value


SHAPES = {
    **dict.fromkeys("qkv", (WIDTH, HEADS, WIDTH // HEADS)),
    "o": (HEADS, WIDTH // HEADS, WIDTH),
    "up": (WIDTH, HIDDEN),
    "down": (HIDDEN, WIDTH),
}
TENSOR_PARALLEL = {
    **dict.fromkeys("qkv", P(None, "model")),
    "o": P("model"),
    "up": P(None, "model"),
    "down": P("model"),
}


@pytest.mark.parametrize("specs", [None, TENSOR_PARALLEL, dict.fromkeys(SHAPES, P("data"))])
@pytest.mark.parametrize("count", [2, 4])
def test_an_accumulated_transformer_step_has_equal_gradients(specs: Any, count: int) -> None:
    params: Any = {
        "embedding": draw(WORDS, WIDTH),
        "layers": [{name: draw(*shape) for name, shape in SHAPES.items()}] * LAYERS,
    }
    tokens = np.arange(64).reshape(8, 8).astype(np.int32) % WORDS
    targets = tokens[:, ::-1] + 0
    if specs is not None:
        mesh = sd.make_mesh((2, 2), ("data", "model"))
        every = {"embedding": P(), "layers": [specs] * LAYERS}
        params = sd.tree.map(
            lambda a, spec: sd.device_put(a, NamedSharding(mesh, spec)), params, every
        )
        tokens, targets = sd.device_put((tokens, targets), NamedSharding(mesh, P("data")))
    compiled = compare(transformer_step, params, tokens, targets, count=count)
    whole = sd.jit(transformer_step).lower(params, tokens, targets)
    peaks = [each.simulate("a100x8").memory.peak for each in (compiled, whole)]
    assert peaks[0] < peaks[1]
    executions = [each.executions for each in compiled.collectives() if each.axes == ("data",)]
    if specs is TENSOR_PARALLEL:
        # The devices add their gradients once, after the loop.
        assert set(executions) == {1}


def mean_loss(w: Any, x: Any) -> Any:
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def test_a_sum_that_the_gradient_needs_is_computed_in_a_loop_before() -> None:
    def masked(w: Any, x: Any, mask: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.sum(jnp.sum(jnp.tanh(x @ w) ** 2, 1) * mask) / jnp.sum(mask)

        return sd.value_and_grad(loss)(w)

    mask = (np.arange(16) % 3 > 0).astype(np.float32)
    compiled = compare(masked, draw(8, 8), draw(16, 8), mask, loop_count=2)
    first, second = loops(compiled)
    assert not any(op.spec is ops.dot for op in first.blocks[0].ops)
    assert sum(op.spec is ops.dot for op in second.blocks[0].ops) == 2


def test_sums_of_the_gradients_of_a_loop_over_layers_follow_the_loop() -> None:
    def layers(ws: Any, x: Any) -> Any:
        def loss(ws: Any) -> Any:
            return jnp.mean(lax.scan(lambda h, w: (h + jnp.tanh(h @ w), None), x, ws)[0] ** 2)

        return sd.value_and_grad(loss)(ws)

    compiled = compare(layers, draw(4, 8, 8), draw(16, 8), count=4)
    whole = sd.jit(layers).lower(draw(4, 8, 8), draw(16, 8)).simulate("a100x8")
    assert compiled.simulate("a100x8").memory.peak < whole.memory.peak


def test_results_with_the_rows_of_all_microbatches_are_stacked() -> None:
    mesh = sd.make_mesh((2,), ("data",))
    x = sd.device_put(draw(16, 8), NamedSharding(mesh, P("data")))
    w = sd.device_put(draw(8, 4), NamedSharding(mesh, P()))
    compare(lambda w, x: (jnp.tanh(x @ w), jnp.max(x @ w), jnp.argsort(x @ w, axis=1)), w, x)
    compare(lambda w, x: jnp.tanh(w.T @ x.T), w, x)


def test_the_batch_may_be_the_last_dimension() -> None:
    def step(w: Any, x: Any) -> Any:
        return sd.value_and_grad(lambda w: mean_loss(x, w.T))(w)

    compare(step, draw(8, 8), draw(8, 16))


def test_an_operation_on_the_whole_batch_runs_between_two_loops() -> None:
    def sorted_loss(w: Any, x: Any) -> Any:
        return sd.value_and_grad(lambda w: mean_loss(w, x[jnp.argsort(jnp.tanh(x[:, 0]))]))(w)

    compare(sorted_loss, draw(8, 8), draw(16, 8), loop_count=2)


def test_each_microbatch_has_its_own_random_numbers() -> None:
    def dropout(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            keep = random.bernoulli(random.key(0), 0.5, (16, 8))
            return jnp.mean(jnp.where(keep, jnp.tanh(x @ w), 0) ** 2)

        return sd.value_and_grad(loss)(w)

    compare(dropout, draw(8, 8), draw(16, 8))


def test_an_argument_that_the_program_shards_itself_is_sliced_in_the_loop() -> None:
    mesh = sd.make_mesh((2,), ("data",))
    rows = NamedSharding(mesh, P("data"))

    def step(w: Any, x: Any) -> Any:
        return sd.grad(lambda w: mean_loss(w, lax.with_sharding_constraint(x, rows)))(w)

    w, x = sd.device_put((draw(8, 8), draw(16, 8)), NamedSharding(mesh, P()))
    compare(step, w, x)


def test_sums_of_bf16_are_carried_in_f32() -> None:
    w, x = draw(8, 8).astype(jnp.bfloat16), draw(16, 8).astype(jnp.bfloat16)
    compiled = sd.jit(sd.grad(mean_loss)).lower(w, x).compile(passes=passes(4))
    (loop,) = loops(compiled)
    assert [str(value.type) for value in loop.results] == ["f32[8, 8]"]
    assert [str(value.type) for value in compiled.module.main.body.returns] == ["bf16[8, 8]"]


@given(modules())
def test_random_programs_have_equal_results(module: Module) -> None:
    """About half of the random programs have a batch whose size 2 divides."""
    whole = Module((), (module.main,))
    result, reason = whole, ""
    try:
        result = Pipeline.parse(f"split-batch,{DEFAULT_PIPELINE},accumulate-microbatches")(whole)
    except PipelineError as error:
        reason = str(error)
    assert (
        reason.startswith(("split-batch", "the batch of", "accumulate-microbatches")) or not reason
    )
    assume(not reason)
    verify(result)
    rng = np.random.default_rng(0)
    args = [
        rng.integers(0, 3, value.type.shape).astype(value.type.numpy)
        for value in whole.main.body.params
    ]
    with np.errstate(all="ignore"):
        pairs = zip(run(result, args), run(whole, args), strict=True)
        for got, want in pairs:
            np.testing.assert_allclose(
                np.asarray(got, np.complex128), np.asarray(want, np.complex128), 1e-3, 1e-3
            )


def test_effects_keep_their_order_around_loops() -> None:
    seen = list[int]()

    def note(number: int, x: Any) -> None:
        debug.callback(lambda _: seen.append(number), x)

    def count(number: int, x: Any) -> Any:
        def run(_: Any) -> Any:
            seen.append(number)
            return np.float32(number)

        return io_callback(run, np.zeros((), np.float32), x)

    def f(x: Any, w: Any) -> Any:
        note(1, w)
        factor = count(2, w)
        note(3, factor)
        total = jnp.sum(jnp.tanh(x @ w * factor))
        note(4, total)
        factor = count(5, w)
        note(6, w)
        return jnp.max(x * factor, axis=0), total

    args = draw(8, WIDTH), draw(WIDTH, 4)
    lowered = sd.jit(f).lower(*args)
    for compiled in (lowered.compile(), lowered.compile(passes=passes(2))):
        seen.clear()
        compiled(*args)
        sd.effects_barrier()
        assert seen == [1, 2, 3, 4, 5, 6]


def test_an_effect_without_results_that_varies_is_refused() -> None:
    def f(x: Any, w: Any) -> Any:
        lax.cond(jnp.sum(w) > 0, lambda: debug.print("{}", x), lambda: None)
        return x @ w

    lowered = sd.jit(f).lower(draw(8, WIDTH), draw(WIDTH, 4))
    with pytest.raises(PipelineError) as raised:
        lowered.compile(passes=passes(2))
    text = str(raised.value)
    assert text.startswith("accumulate-microbatches cannot run case along the axis 'microbatch' in")
    assert text.endswith("; write the loop over microbatches with lax.scan")


def refusal(text: str, pipeline: str) -> str:
    with pytest.raises(ShardirError) as raised:
        Pipeline.parse(pipeline)(parse(text))
    return str(raised.value)


STEP = """\
func @step(%x: f32[6, 4], %w: f32[4, 8]) -> (f32[4, 8]) {
  %h = dot(%x, %w, dims="bi,ih->bh") : f32[6, 8]
  %g = dot(%x, %h, dims="bi,bh->ih") : f32[4, 8]
  return %g
}
"""


def test_the_batch_is_the_group_of_dimensions_without_state() -> None:
    main = parse(STEP).main
    found = find_batch(main)
    assert found is not None
    assert {value.name: dim for value, dim in found.items()} == {"x": 0, "h": 0}


def test_the_batch_has_a_dimension_of_an_argument() -> None:
    """No argument has the larger dimension of `%k`, and the scalars have none."""
    main = parse("""
func @f(%x: f32[6], %s: f32[]) -> (f32[6], f32[]) {
  %k = iota(dim=0) : f32[512]
  %t = sum(%k, dims=[0]) : f32[]
  %u = broadcast(%t, dims=[]) : f32[6]
  %y = add(%x, %u) : f32[6]
  %z = add(%s, %t) : f32[]
  return %y, %z
}""").main
    found = find_batch(main)
    assert found is not None
    assert {value.name: dim for value, dim in found.items()} == {"x": 0, "u": 0, "y": 0}


def test_wrong_uses_are_refused() -> None:
    assert refusal(STEP, "split-batch{microbatches=4}") == (
        "the batch of @step has 6 rows on each device (dimension 0 of %x), which 4 microbatches do "
        "not divide; choose a divisor"
    )
    assert refusal(STEP, "split-batch{microbatches=0}") == (
        "split-batch cannot make 0 microbatches; write split-batch{microbatches=2}"
    )
    assert refusal(STEP, "default,accumulate-microbatches") == (
        "@step has no microbatches; write split-batch{microbatches=2},default,"
        "accumulate-microbatches"
    )
    sharded = f"mesh @m = [x=2]\n\n{STEP.replace('6, 4', '6@x, 4')}"
    for text, pipeline in (
        (sharded, "default,accumulate-microbatches"),
        (sharded, "split-batch{microbatches=3},accumulate-microbatches"),
    ):
        assert refusal(text, pipeline) == (
            "@step has no microbatches; write split-batch{microbatches=2},default,"
            "accumulate-microbatches"
        )
    square = "func @f(%w: f32[4, 4]) -> (f32[4, 4]) {\n"
    square += '  %y = dot(%w, %w, dims="ij,jk->ik") : f32[4, 4]\n  return %y\n}\n'
    assert refusal(square, "split-batch") == (
        "split-batch finds no batch in @f: no dimension of its arguments occurs at most once in "
        "each value that depends on it; write the loop over microbatches with lax.scan"
    )
    sharded = STEP.replace("%x: f32[6, 4]", "%x: f32[6@microbatch, 4]")
    assert refusal(f"mesh @m = [microbatch=2]\n\n{sharded}", "split-batch") == (
        "the mesh of @step has an axis 'microbatch', which is the name of the axis that "
        "split-batch adds; write split-batch once, or rename the axis of the mesh"
    )
    assert refusal(
        f"mesh @m = [x=2]\n\n{STEP.replace('6, 4', '6@x, 4')}", "default,split-batch"
    ) == (
        "@step has been partitioned, and split-batch needs the program before; write "
        "split-batch,default,accumulate-microbatches"
    )


@pytest.mark.parametrize(
    ("mesh", "x", "expected"),
    [
        ("", "6, 4", {"microbatch": 1}),
        ("mesh @m = [x=2]\n\n", "6@x, 4", {"x": 2}),
        ("mesh @m = [x=2, y=1]\n\n", "6, 4", {"x": 2, "y": 1}),
    ],
)
def test_the_mesh_after_accumulation_is_that_of_the_devices(
    mesh: str, x: str, expected: dict[str, int]
) -> None:
    """A program for one device keeps the axis of microbatches, with one position."""
    module = parse(mesh + STEP.replace("6, 4", x))
    made = Pipeline.parse(passes(3))(module)
    assert [each.sizes for each in made.meshes] == [expected]
    rng = np.random.default_rng(0)
    args = [rng.integers(-3, 4, value.type.shape).astype("f") for value in module.main.body.params]
    np.testing.assert_array_equal(run(made, args), run(module, args))


def test_other_meshes_and_the_shardings_of_weights_remain() -> None:
    text = STEP.replace("6, 4", "6@x, 4").replace("%w: f32[4, 8]", "%w: f32[4, 8@y]")
    module = parse(f"mesh @m = [x=2, y=2]\n\nmesh @n = [z=4]\n\n{text}")
    made = Pipeline.parse("split-batch{microbatches=3}")(module)
    assert [(each.name, each.sizes) for each in made.meshes] == [
        ("m", {"x": 2, "y": 2, "microbatch": 3}),
        ("n", {"z": 4}),
    ]
    before, after = (each.main.body.params[1].sharding for each in (module, made))
    assert before is not None
    assert after is not None
    assert after.dims == before.dims
    assert [axis.name for axis in after.replicated] == ["microbatch"]


def test_only_closed_batch_dimensions_have_the_axis_of_microbatches() -> None:
    module = parse("""
mesh @m = [x=2]

func @step(%x: f32[12@x, 4], %w: f32[4, 8]) -> (f32[4, 8@x]) {
  %v = sharding_constraint(%w) : f32[4, 8@x]
  %h = dot(%x, %v, dims="bi,ih->bh") : f32[12, 8]
  %k = sharding_constraint(%h) : f32[12@x, 8]
  %l = sharding_constraint(%k) : f32[12@?, 8@?]
  %g = dot(%x, %l, dims="bi,bh->ih") : f32[4, 8]
  return %g
}""")
    text = str(Pipeline.parse("split-batch{microbatches=3}")(module))
    for line in (
        "%x: f32[12@(x, microbatch), 4@-]",
        ") -> (f32[4, 8@x])",
        "%v = sharding_constraint(%w) : f32[4, 8@x]\n",
        "%k = sharding_constraint(%h) : f32[12@(x, microbatch), 8]\n",
        "%l = sharding_constraint(%k) : f32[12, 8] on @m\n",
    ):
        assert line in text
