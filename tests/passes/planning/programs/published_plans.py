"""Training steps with the plans of publications, with which tests compare the plans of the search.

A row has a program, a mesh, the arguments' shardings of the published plan, and the costs of
Alpa's tests: data sent along each mesh axis, and nothing for computation that all plans divide.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import shardir as sd
import shardir.numpy as snp
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.lax import scan
from shardir.nn import relu, silu, softmax
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.programs.assignment import ArgumentAxes, DimAxes
from shardir.passes.planning.programs.evaluation import Evaluation
from shardir.passes.planning.programs.plan_program import ProgramPlan, plan_program
from shardir.passes.planning.programs.planning_request import PlanningRequest, make_evaluator
from shardir.sharding import PartitionSpec as P
from tests.passes.alpa_models import (
    Shapes,
    adam,
    attended,
    attention_shapes,
    batch_normalized,
    bert_layer,
    bert_loss,
    bert_shapes,
    convolution_loss,
    convolution_shapes,
    convolved,
    dense_shapes,
    error,
    expert_shapes,
    masked_loss,
    masked_shapes,
    normalized,
    perceptron_loss,
    perceptron_shapes,
    routed,
    surprise,
)
from tests.passes.planning.programs.machines import SimpleMachine

Batch = Sequence[tuple[tuple[int, ...], P, str]]


@dataclass(frozen=True)
class PublishedPlan:
    """A step of Adam, and the specs of its parameters, their state and its batch."""

    loss: Callable[..., Any]
    shapes: Shapes
    batch: Batch
    mesh: tuple[tuple[str, int], ...]
    state: dict[str, P] | None = None

    def trace(self) -> Module:
        """Return the step without any sharding."""
        structs = {
            name: sd.ShapeDtypeStruct(shape, "float32") for name, (shape, _) in self.shapes.items()
        }
        inputs = [sd.ShapeDtypeStruct(shape, dtype) for shape, _, dtype in self.batch]

        def step(params: Any, state: Any, *batch: Any) -> Any:
            gradients = sd.grad(self.loss)(params, *batch)
            return adam(params, gradients, state)

        module: Module = sd.jit(step).lower(structs, (structs, structs), *inputs).module
        return module

    @property
    def arguments(self) -> ArgumentAxes:
        """The axes of each argument in the published plan."""
        names = sorted(self.shapes)
        state = self.state or {}
        params = [self._axes(*self.shapes[name]) for name in names]
        moments = [
            self._axes(self.shapes[name][0], state.get(name, self.shapes[name][1]))
            for name in names
        ]
        return (*params, *moments, *moments, *(self._axes(*each[:2]) for each in self.batch))

    def _axes(self, shape: tuple[int, ...], spec: P) -> DimAxes:
        dims: list[tuple[str, ...]] = []
        for dim in range(len(shape)):
            axes = spec.axes(dim)
            assert isinstance(axes, tuple)
            dims.append(axes)
        return tuple(dims)

    def plan(
        self, machine: SimpleMachine | None = None, *, is_limited: bool = False
    ) -> tuple[ProgramPlan, Evaluation]:
        """Return the plan of the search, and the evaluation of the published one, whose memory may
        be the limit."""
        module, mesh = self.trace(), Mesh("mesh", self.mesh)
        request = PlanningRequest(module, mesh, Pipeline.parse(DEFAULT_PIPELINE), machine)
        published = make_evaluator(request).evaluate(self.arguments)
        assert published is not None
        limit = published.peak if is_limited else None
        return plan_program(replace(request, memory_limit=limit)), published


def moe_layer(params: Any, at: str, x: Any, group: int) -> Any:
    """Compute attention and experts, without constraints on the tokens that experts exchange."""
    x = attended(params, at, x)
    tokens = x.reshape(-1, group, x.shape[-1])
    gates = softmax(snp.einsum("gsm,me->gse", tokens, params[f"{at}.gate"]))
    combine, dispatch = routed(gates, 2 * group // gates.shape[-1])
    entering = snp.einsum("gsec,gsm->egcm", dispatch, tokens)
    h = relu(snp.einsum("egcm,emh->egch", entering, params[f"{at}.up"]))
    leaving = snp.einsum("egch,ehm->gecm", h, params[f"{at}.down"])
    mixed = snp.einsum("gsec,gecm->gsm", combine, leaving).reshape(x.shape)
    return normalized(x + mixed, params[f"{at}.scale2"], params[f"{at}.shift2"])


def expert_loss(params: Any, x: Any, target: Any) -> Any:
    return error(moe_layer(params, "0", x, 32), target)


def expert_model_loss(params: Any, x: Any, target: Any) -> Any:
    h = moe_layer(params, "0", params["words"][x], 32)
    return surprise(bert_layer(params, "1", h) @ params["words"].T, target)


def embedding_loss(params: Any, x: Any, target: Any) -> Any:
    return surprise(params["words"][x] @ params["words"].T, target)


def depthwise_loss(params: Any, x: Any, target: Any) -> Any:
    x = convolved(x, params["wide"])
    x = convolved(x, params["by_channel"], groups=params["by_channel"].shape[-1])
    x = relu(convolved(x, params["narrow"]))
    return error(batch_normalized(x, params["scale"], params["shift"]), target)


def depthwise_shapes(width: int) -> Shapes:
    return {
        "wide": ((3, 3, width, 8 * width), P(None, None, None, "model")),
        "by_channel": ((3, 3, 1, 8 * width), P(None, None, None, "model")),
        "narrow": ((3, 3, 8 * width, width), P(None, None, "model")),
        "scale": ((width,), P()),
        "shift": ((width,), P()),
    }


def accumulated_loss(params: Any, x: Any, target: Any) -> Any:
    """Compute the sum of the losses of microbatches in a loop."""
    total, _ = scan(
        lambda total, pair: (total + perceptron_loss(params, *pair), None), 0.0, (x, target)
    )
    return total


def feed_forward_loss(params: Any, x: Any, target: Any) -> Any:
    return error(relu(x @ params["w1"]) @ params["w2"], target)


def one_layer_loss(params: Any, x: Any, target: Any) -> Any:
    return error(bert_layer(params, "0", x), target)


def llama_loss(params: Any, x: Any, target: Any) -> Any:
    """Compute a layer of Llama 3: grouped attention, and a gated perceptron."""

    def scaled(x: Any, scale: Any) -> Any:
        return x / snp.sqrt(snp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * scale

    h = scaled(x, params["attention_scale"])
    q = snp.einsum("bsd,dghk->bsghk", h, params["q"])
    k = snp.einsum("bsd,dgk->bsgk", h, params["k"])
    v = snp.einsum("bsd,dgk->bsgk", h, params["v"])
    weights = softmax(snp.einsum("bsghk,btgk->bghst", q, k) * q.shape[-1] ** -0.5)
    mixed = snp.einsum("bghst,btgk->bsghk", weights, v)
    x = x + snp.einsum("bsghk,ghkd->bsd", mixed, params["o"])
    h = scaled(x, params["dense_scale"])
    gated = silu(h @ params["gate"]) * (h @ params["up"])
    return error(x + gated @ params["down"], target)


def llama_shapes(width: int, heads: int, groups: int, hidden: int) -> Shapes:
    """Return the shapes with the shardings of Megatron: columns, then rows."""
    size, queries = width // heads, heads // groups
    return {
        "q": ((width, groups, queries, size), P(None, "model")),
        "k": ((width, groups, size), P(None, "model")),
        "v": ((width, groups, size), P(None, "model")),
        "o": ((groups, queries, size, width), P("model")),
        "gate": ((width, hidden), P(None, "model")),
        "up": ((width, hidden), P(None, "model")),
        "down": ((hidden, width), P("model")),
        "attention_scale": ((width,), P()),
        "dense_scale": ((width,), P()),
    }


def fully_sharded(shapes: Shapes, axis: str = "data") -> Shapes:
    """Return the shapes with the first unsharded dimension of each also sharded along an axis."""
    found: Shapes = {}
    for name, (shape, spec) in shapes.items():
        dims = [*spec, *[None] * (len(shape) - len(spec))]
        if None in dims:
            dims[dims.index(None)] = axis
        else:
            dims[0] = (dims[0], axis)
        found[name] = shape, P(*dims)
    return found


def pair(shape: tuple[int, ...], spec: P, dtype: str = "float32") -> Batch:
    """Return the input and the target, which have the same type."""
    return [(shape, spec, dtype)] * 2


ROWS, WHOLE = P("data"), P()
DATA, MODEL, SQUARE = (("data", 4),), (("model", 4),), (("data", 2), ("model", 2))
EXPERTS = expert_shapes("0", 64, 16, 16, "data")
EXPERT_MODEL = (
    EXPERTS
    | attention_shapes("1", 64, 16, None)
    | dense_shapes("1", 64, None)
    | {"words": ((32, 64), P())}
)
IMAGES: Batch = [((16, 16, 16, 4), ROWS, "float32"), ((16, 2, 2, 4), ROWS, "float32")]
CHANNELS: Batch = [((8, 16, 16, 256), WHOLE, "float32"), ((8, 1, 1, 256), WHOLE, "float32")]
FEED_FORWARD: Shapes = {"w1": ((1024, 4096), P()), "w2": ((4096, 1024), P())}
TENSOR_FEED_FORWARD: Shapes = {
    "w1": ((1024, 4096), P(None, "model")),
    "w2": ((4096, 1024), P("model")),
}

ALPA = {
    "perceptron, data parallel": PublishedPlan(
        perceptron_loss, perceptron_shapes(32), pair((256, 32), ROWS), DATA
    ),
    "perceptron, tensor parallel": PublishedPlan(
        perceptron_loss, perceptron_shapes(256, "model"), pair((32, 256), WHOLE), MODEL
    ),
    "perceptron, two axes": PublishedPlan(
        perceptron_loss, perceptron_shapes(32, "model"), pair((256, 32), ROWS), SQUARE
    ),
    "attention, data parallel": PublishedPlan(
        bert_loss, bert_shapes(2, 32, 8), pair((64, 64, 32), ROWS), DATA
    ),
    "attention, tensor parallel": PublishedPlan(
        bert_loss, bert_shapes(2, 128, 8, "model"), pair((8, 8, 128), WHOLE), MODEL
    ),
    "attention, two axes": PublishedPlan(
        bert_loss, bert_shapes(2, 128, 8, "model"), pair((8, 8, 128), ROWS), SQUARE
    ),
    "embedding, two axes": PublishedPlan(
        embedding_loss, {"words": ((1024, 8), P("model"))}, pair((8, 8), ROWS, "int32"), SQUARE
    ),
    "language model, data parallel": PublishedPlan(
        masked_loss, masked_shapes(128, 32, 16, 4, None), pair((32, 32), ROWS, "int32"), DATA
    ),
    "language model, tensor parallel": PublishedPlan(
        masked_loss, masked_shapes(512, 16, 128, 8, "model"), pair((16, 16), WHOLE, "int32"), MODEL
    ),
    "convolutions, data parallel": PublishedPlan(
        convolution_loss, convolution_shapes(3, 4), IMAGES, DATA
    ),
    "convolutions, tensor parallel": PublishedPlan(
        convolution_loss, convolution_shapes(4, 256, "model"), CHANNELS, MODEL
    ),
    "depthwise convolution": PublishedPlan(
        depthwise_loss, depthwise_shapes(256), pair((4, 8, 8, 256), WHOLE), MODEL
    ),
    "experts": PublishedPlan(expert_loss, EXPERTS, pair((64, 16, 64), ROWS), DATA),
    "experts, two axes": PublishedPlan(expert_loss, EXPERTS, pair((64, 16, 64), ROWS), SQUARE),
    "language model with experts": PublishedPlan(
        expert_model_loss, EXPERT_MODEL, pair((64, 16), ROWS, "int32"), DATA
    ),
    "microbatches": PublishedPlan(
        accumulated_loss, perceptron_shapes(32), pair((4, 64, 32), P(None, "data")), DATA
    ),
}
"""The plans of Alpa's tests (alpa-projects/alpa, tests/shard_parallel)."""

AUTOPARALLEL = {
    "DDP": PublishedPlan(feed_forward_loss, FEED_FORWARD, pair((32, 256, 1024), ROWS), DATA),
    "FSDP": PublishedPlan(
        feed_forward_loss, fully_sharded(FEED_FORWARD), pair((32, 256, 1024), ROWS), DATA
    ),
    "FSDP and tensor parallel": PublishedPlan(
        feed_forward_loss,
        fully_sharded(TENSOR_FEED_FORWARD),
        pair((16, 256, 1024), ROWS),
        SQUARE,
    ),
    "FSDP and tensor parallel attention": PublishedPlan(
        one_layer_loss,
        fully_sharded(bert_shapes(1, 6144, 48, "model")),
        pair((16, 256, 6144), ROWS),
        SQUARE,
    ),
}
"""The plans of AutoParallel's tests (meta-pytorch/autoparallel, tests/test_optimize_placement.py),
which limit the memory of parameters."""

LLAMA = {
    "8B": PublishedPlan(
        llama_loss, llama_shapes(4096, 32, 8, 14336), pair((1, 2048, 4096), WHOLE), MODEL
    ),
    "70B": PublishedPlan(
        llama_loss, llama_shapes(8192, 64, 8, 28672), pair((1, 2048, 8192), WHOLE), MODEL
    ),
}
"""The plans of Megatron for a layer of Llama 3."""
