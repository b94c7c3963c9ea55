"""A mixture of experts whose tokens are sent to their experts, on eight virtual devices.

Each device has 32 tokens and two of sixteen experts. A router selects two experts for each token
(Shazeer et al. 2017, arXiv 1701.06538). The tokens fill a queue for each expert, an all-to-all
sends the queues to the devices of the experts, and a second one sends the results back. A queue has
`CAPACITY` places for the tokens of one device; a token that finds no place skips the expert.

    python examples/expert_parallelism.py
"""

from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as jnp
from shardir import lax, nn, testing
from shardir.sharding import NamedSharding, PartitionSpec as P

DEVICES, TOKENS, WIDTH, HIDDEN = 8, 32, 32, 64
EXPERTS, SELECTED, CAPACITY = 16, 2, 6


def route(router: Any, x: Any) -> tuple[Any, Any, Any]:
    """Return the places of the tokens in the queues, [tokens, experts, places], as ones and as
    weights, and the load-balancing loss of these tokens (Fedus et al. 2021, arXiv 2101.03961).
    """
    probabilities = nn.softmax(x @ router)
    weights, experts = lax.top_k(probabilities, SELECTED)
    weights = weights / weights.sum(-1, keepdims=True)
    # First choices of all tokens get their places before second choices.
    chosen = nn.one_hot(experts.T, EXPERTS)  # [choices, tokens, experts]
    flat = chosen.reshape(-1, EXPERTS)
    place = ((jnp.cumsum(flat, axis=0) * flat).sum(-1) - 1).reshape(chosen.shape[:2])
    slots = chosen[..., None] * nn.one_hot(place.astype("int32"), CAPACITY)[:, :, None]
    balance = EXPERTS * jnp.sum(chosen[0].mean(0) * probabilities.mean(0))
    return slots.sum(0), jnp.einsum("ctes,ct->tes", slots, weights.T), balance


def run_experts(w1: Any, w2: Any, queues: Any) -> Any:
    """Return the results of the experts for their queues, [experts, places, width]."""
    return jnp.einsum("esh,ehd->esd", nn.relu(jnp.einsum("esd,edh->esh", queues, w1)), w2)


def layer(router: Any, w1: Any, w2: Any, x: Any, axis: str) -> tuple[Any, Any]:
    """Return the tokens after their experts, and the load-balancing loss.

    Use it inside of `shard_map`: `x` has the tokens of this device, `w1` and `w2` its experts.
    """
    slots, weights, balance = route(router, x)
    queues = jnp.einsum("tes,td->esd", slots, x)
    # [all experts, places] -> [experts of this device, places of all devices]
    queues = lax.all_to_all(queues, axis, split_axis=0, concat_axis=1, tiled=True)
    results = run_experts(w1, w2, queues)
    results = lax.all_to_all(results, axis, split_axis=1, concat_axis=0, tiled=True)
    return x + jnp.einsum("tes,esd->td", weights, results), lax.pmean(balance, axis)


def layer_of_one_device(router: Any, w1: Any, w2: Any, x: Any) -> tuple[Any, Any]:
    """Return the same for the tokens of all devices and all experts."""

    def each(x: Any) -> tuple[Any, Any]:
        slots, weights, balance = route(router, x)
        results = run_experts(w1, w2, jnp.einsum("tes,td->esd", slots, x))
        return x + jnp.einsum("tes,esd->td", weights, results), balance

    out, balance = sd.vmap(each)(x.reshape(DEVICES, TOKENS, WIDTH))
    return out.reshape(x.shape), balance.mean()


def main() -> None:
    """Compare results and gradients with one device, and check the collectives."""
    mesh = sd.make_mesh((DEVICES,), ("expert",))
    rng = np.random.default_rng(0)
    shapes = ((WIDTH, EXPERTS), (EXPERTS, WIDTH, HIDDEN), (EXPERTS, HIDDEN, WIDTH))
    arrays = [rng.standard_normal(shape).astype("float32") / 4 for shape in shapes]
    arrays.append(rng.standard_normal((DEVICES * TOKENS, WIDTH)).astype("float32"))
    specs = (P(), P("expert"), P("expert"), P("expert"))
    args = sd.device_put(arrays, [NamedSharding(mesh, spec) for spec in specs])

    sharded = sd.jit(
        sd.shard_map(
            lambda router, w1, w2, x: layer(router, w1, w2, x, "expert"),
            mesh=mesh,
            in_specs=specs,
            out_specs=(P("expert"), P()),
        )
    )
    for got, want in zip(sharded(*args), layer_of_one_device(*arrays), strict=True):
        assert np.allclose(got, want, atol=1e-5)
    slots = [route(arrays[0], x)[0] for x in np.split(arrays[3], DEVICES)]
    placed = float(sum(s.sum() for s in slots)) / (SELECTED * DEVICES * TOKENS)
    print(f"{placed:.1%} of the choices found a place")

    queues = EXPERTS * CAPACITY * WIDTH * 4
    testing.assert_collectives(sharded, args, all_to_all=2, all_reduce=1, all_gather=0)
    check_exchanges("layer", sharded, args, queues)

    def loss(function: Any, *args: Any) -> Any:
        out, balance = function(*args)
        return jnp.mean(out**2) + 0.01 * balance

    gradient = sd.jit(sd.grad(lambda *args: loss(sharded, *args), argnums=(0, 1, 2, 3)))
    reference = sd.grad(lambda *args: loss(layer_of_one_device, *args), argnums=(0, 1, 2, 3))
    for got, want in zip(gradient(*args), reference(*arrays), strict=True):
        assert np.allclose(got, want, atol=1e-5)
    # Both exchanges, and their gradients. The gradients of experts stay where the experts are.
    testing.assert_collectives(gradient, args, all_to_all=4, all_gather=0, reduce_scatter=0)
    check_exchanges("gradient", gradient, args, queues)


def check_exchanges(name: str, function: Any, args: Any, queues: int) -> None:
    """Print the collectives; check the bytes of all-to-alls, and that other ones are small."""
    print(name)
    for each in testing.collectives(function, args):
        print(f"  {each.kind:10} {each.nbytes:6} bytes, sends {each.sent:6}: {each.why}")
        if each.kind == "all-to-all":
            assert (each.nbytes, each.sent) == (queues, queues * (DEVICES - 1) // DEVICES)
        else:
            assert each.kind == "all-reduce"
            assert each.nbytes <= WIDTH * EXPERTS * 4


if __name__ == "__main__":
    main()
