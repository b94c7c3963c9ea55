"""Programs of public complaints about the collectives of XLA, as small programs of JAX.

A program defines `f`, and `arguments`: shapes, shardings, and the number of elements that integer
arguments index. The mesh is `mesh`, with the axes `x` and `y`.
"""

from dataclasses import dataclass

HEADER = """\
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

constraint = jax.lax.with_sharding_constraint

"""


@dataclass(frozen=True)
class Complaint:
    """A program with XLA's collectives.

    `line` is the line that the explanation names, `cause` the kind of cause, `operation` JAX's
    primitive. `before` and `after` are the bytes that a device sends without the remedy and with
    it; they are equal if no change avoids the collectives. `hint` is the text of a remedy that is
    not an annotation, and `changed` the line with it.
    """

    threads: tuple[str, ...]
    body: str
    line: str
    cause: str
    operation: str
    before: int
    after: int
    mesh: tuple[int, int] = (8, 1)
    hint: str = ""
    changed: str = ""
    partitionable: bool = True

    @property
    def program(self) -> str:
        return HEADER + self.body


COMPLAINTS = {
    "rematerialization": Complaint(
        ("jax-ml/jax#21562", "openxla/xla#15207"),
        """\
arguments = [((16, 16, 16), P("y", None, "x"))] * 2 + [((16, 16, 16), P(None, ("x", "y")))]


def f(a, b, c):
    d = a + b
    d = constraint(d, P(None, ("x", "y")))
    return c + d
""",
        "    d = a + b",
        "REMATERIALIZATION",
        "add",
        14336,
        2816,
        mesh=(4, 2),
    ),
    "grouped convolution": Complaint(
        ("openxla/xla#47945",),
        """\
arguments = [((16, 8, 8, 8), P("x")), ((3, 3, 4, 8), P())]


def f(x, k):
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, k, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=2
    )
""",
        "    return jax.lax.conv_general_dilated(",
        "REPLICATION",
        "conv_general_dilated",
        28672,
        0,
    ),
    "batched fft": Complaint(
        ("jax-ml/jax#15680", "jax-ml/jax#13081", "openxla/xla#24"),
        """\
arguments = [((16, 1024), P("x"))]


def f(x):
    return jnp.fft.fft(x, axis=1)
""",
        "    return jnp.fft.fft(x, axis=1)",
        "REPLICATION",
        "fft",
        114688,
        0,
    ),
    "fft under vmap": Complaint(
        ("jax-ml/jax#20683",),
        """\
arguments = [((16, 256), P("x"))]


def f(x):
    y = jax.vmap(jnp.fft.rfft)(x)
    return jnp.abs(y)
""",
        "    y = jax.vmap(jnp.fft.rfft)(x)",
        "REPLICATION",
        "fft",
        14336,
        0,
    ),
    "static scatter": Complaint(
        ("jax-ml/jax#23052", "EnzymeAD/Enzyme-JAX#596"),
        """\
arguments = [((64, 32), P("x")), ((3, 32), P())]


def f(x, u):
    return x.at[0:3].set(u)
""",
        "    return x.at[0:3].set(u)",
        "REPLICATION",
        "scatter",
        7168,
        896,
    ),
    "concatenation": Complaint(
        ("jax-ml/jax#33646", "openxla/xla#34710"),
        """\
arguments = [((64, 32), P("x"))] * 2


def f(x, y):
    return jnp.concatenate([x, y], 0)
""",
        "    return jnp.concatenate([x, y], 0)",
        "EXCHANGE",
        "concatenate",
        3584,
        1792,
    ),
    "gradient accumulation": Complaint(
        ("openxla/xla#13306",),
        """\
arguments = [((64, 128), P("x"))]


def f(x):
    def step(total, batch):
        return total + jnp.sum(batch * batch), None

    batches = x.reshape(4, 16, 128)
    return jax.lax.scan(step, 0.0, batches)[0]
""",
        "    return jax.lax.scan(step, 0.0, batches)[0]",
        "OPERAND",
        "dynamic_slice",
        12304,
        3612,
    ),
    "one layer of a stack": Complaint(
        ("openxla/xla#44794",),
        """\
arguments = [((8, 64, 64), P("x")), ((), P(), 8)]


def f(w, i):
    return jax.lax.dynamic_index_in_dim(w, i, 0, keepdims=False)
""",
        "    return jax.lax.dynamic_index_in_dim(w, i, 0, keepdims=False)",
        "OPERAND",
        "dynamic_slice",
        114688,
        14336,
    ),
    "scan over sharded layers": Complaint(
        ("openxla/xla#20023", "pytorch/xla#8883"),
        """\
arguments = [((8, 64, 64), P("x")), ((16, 64), P())]


def f(w, h):
    def layer(h, w):
        return jnp.tanh(h @ w / 8), None

    return jax.lax.scan(layer, h, w)[0]
""",
        "    return jax.lax.scan(layer, h, w)[0]",
        "OPERAND",
        "dynamic_slice",
        114688,
        43008,
    ),
    "embedding": Complaint(
        ("tenstorrent/tt-xla#2463",),
        """\
arguments = [((1024, 64), P("x")), ((16, 32), P(), 1024)]


def f(table, tokens):
    return table[tokens]
""",
        "    return table[tokens]",
        "LOOKUP",
        "gather",
        229376,
        28672,
    ),
    "embedding of a sharded batch": Complaint(
        ("AI-Hypercomputer/maxtext#132",),
        """\
arguments = [((1024, 64), P("x")), ((16, 32), P("x"), 1024)]


def f(table, tokens):
    return table[tokens]
""",
        "    return table[tokens]",
        "LOOKUP",
        "gather",
        231168,
        30464,
    ),
    "shuffle": Complaint(
        ("jax-ml/jax#20381",),
        """\
arguments = [((64, 32), P("x")), ((64,), P(), 64)]


def f(x, order):
    return x[order]
""",
        "    return x[order]",
        "LOOKUP",
        "gather",
        14336,
        896,
    ),
    "top_k of a sharded vocabulary": Complaint(
        ("sgl-project/sglang-jax#1063", "vllm-project/tpu-inference#3511"),
        """\
def sharded_top_k(x):
    values, indices = jax.lax.top_k(x, 4)
    indices += jax.lax.axis_index("x") * x.shape[1]
    values = jax.lax.all_gather(values, "x", axis=1, tiled=True)
    indices = jax.lax.all_gather(indices, "x", axis=1, tiled=True)
    values, chosen = jax.lax.top_k(values, 4)
    return [values, jnp.take_along_axis(indices, chosen, 1)]


arguments = [((16, 1024), P(None, "x"))]


def f(x):
    return jax.lax.top_k(x, 4)
""",
        "    return jax.lax.top_k(x, 4)",
        "OPERAND",
        "top_k",
        57344,
        3584,
        hint=(
            "in jax.shard_map, take top_k of each shard, all_gather these elements, and take top_k "
            "of them"
        ),
        changed=(
            '    return jax.shard_map(sharded_top_k, mesh=mesh, in_specs=P(None, "x"), '
            "out_specs=P(), check_vma=False)(x)"
        ),
    ),
    "fused projection": Complaint(
        ("sgl-project/sglang-jax#1096", "sgl-project/sglang-jax#1093"),
        """\
arguments = [((16, 64), P()), ((64, 192), P(None, "x"))]


def f(x, w):
    q, k, v = jnp.split(x @ w, 3, -1)
    return q * k + v
""",
        "    q, k, v = jnp.split(x @ w, 3, -1)",
        "SHIFT",
        "split",
        8192,
        1344,
    ),
    "merged dimensions": Complaint(
        ("openxla/xla#13306", "tenstorrent/tt-xla#1725"),
        """\
arguments = [((16, 64, 32), P(None, "x"))]


def f(x):
    return x.reshape(16 * 64, 32)
""",
        "    return x.reshape(16 * 64, 32)",
        "OPERAND",
        "reshape",
        114688,
        14336,
    ),
    "own elements of each row": Complaint(
        ("jax-ml/jax#28542",),
        """\
arguments = [((64, 32), P("x")), ((64,), P("x"), 32)]


def f(x, labels):
    return x[jnp.arange(64), labels]
""",
        "    return x[jnp.arange(64), labels]",
        "LOOKUP",
        "gather",
        896,
        0,
        hint=(
            "index with jnp.take_along_axis or jax.vmap if an index is jnp.arange, so that XLA "
            "sees that each shard uses its own elements only; otherwise leave the indexed "
            "dimension unsharded"
        ),
        changed="    return jnp.take_along_axis(x, labels[:, None], 1)[:, 0]",
    ),
    "host function": Complaint(
        ("marin-community/marin#6470",),
        """\
def double(x):
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda x: x * 2, shape, x, vmap_method="sequential")


arguments = [((64, 32), P("x"))]


def f(x):
    return double(x)
""",
        '    return jax.pure_callback(lambda x: x * 2, shape, x, vmap_method="sequential")',
        "OPERAND",
        "pure_callback",
        7168,
        0,
        hint="call it in jax.shard_map, on the shard of each device",
        changed=(
            '    return jax.shard_map(double, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x)'
        ),
    ),
    "random numbers": Complaint(
        ("jax-ml/jax#15484", "jax-ml/jax#13012"),
        """\
arguments = [((64, 32), P("x"))]


def f(x):
    return x + jax.random.normal(jax.random.key(0), (64, 32))
""",
        "    return x + jax.random.normal(jax.random.key(0), (64, 32))",
        "REMATERIALIZATION",
        "concatenate",
        9728,
        0,
        hint=(
            "jax.config.update('jax_threefry_partitionable', True) generates random numbers "
            "without communication"
        ),
        partitionable=False,
    ),
    "roll": Complaint(
        ("jax-ml/jax#15773",),
        """\
arguments = [((64,), P("x"))]


def f(x):
    return jnp.roll(x, 1)
""",
        "    return jnp.roll(x, 1)",
        "SHIFT",
        "concatenate",
        4,
        4,
    ),
    "gradient of a grouped convolution": Complaint(
        ("openxla/xla#48086",),
        """\
arguments = [((16, 8, 8, 8), P("x")), ((3, 3, 4, 8), P())]


def f(x, k):
    layout = ("NHWC", "HWIO", "NHWC")

    def loss(k):
        y = jax.lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=2
        )
        return jnp.sum(y * y)

    return jax.value_and_grad(loss)(k)
""",
        "        y = jax.lax.conv_general_dilated(",
        "REPLICATION",
        "conv_general_dilated",
        30695,
        2023,
    ),
    "gathered weights": Complaint(
        ("jax-ml/jax#25010",),
        """\
arguments = [((64, 64), P("x")), ((64, 128), P("x"))]


def f(x, w):
    return jnp.tanh(x @ w)
""",
        "    return jnp.tanh(x @ w)",
        "OPERAND",
        "dot_general",
        28672,
        17920,
    ),
    "product in the other order of axes": Complaint(
        ("openxla/xla#4062",),
        """\
arguments = [((64, 512), P("x")), ((512, 64), P(None, "y"))]


def f(x, w):
    y = x @ w
    return constraint(y, P("y", "x"))
""",
        "    y = x @ w",
        "OPERAND",
        "dot_general",
        98304,
        69120,
        mesh=(4, 2),
    ),
    "cumulative sum": Complaint(
        ("jax-ml/jax#18961",),
        """\
arguments = [((64, 32), P("x"))]


def f(x):
    return jnp.cumsum(x, 0)
""",
        "    return jnp.cumsum(x, 0)",
        "OPERAND",
        "reduce_window_sum",
        7168,
        896,
    ),
    "request of the program": Complaint(
        ("jax-ml/jax#6992",),
        """\
arguments = [((64, 32), P("x"))]


def f(x):
    total = jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    return total(x)
""",
        '    total = jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), '
        "out_specs=P())",
        "REQUEST",
        "psum_invariant",
        1792,
        1792,
    ),
}
