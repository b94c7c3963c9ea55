"""Further programs of public complaints about the collectives of XLA, and one of our own."""

from tests.xla.complaints import Complaint

FURTHER_COMPLAINTS = {
    "histogram": Complaint(
        ("jax-ml/jax#16258", "marin-community/marin#5919"),
        """\
arguments = [((64, 32), P("x"))]


def f(x):
    return jnp.histogram(x, bins=16, range=(-3.0, 3.0))[0]
""",
        "    return jnp.histogram(x, bins=16, range=(-3.0, 3.0))[0]",
        "PARTIAL_SUMS",
        "scatter-add",
        119,
        119,
    ),
    "argsort": Complaint(
        ("jax-ml/jax#35650",),
        """\
arguments = [((1024,), P("x"))]


def f(x):
    return jnp.argsort(x)
""",
        "    return jnp.argsort(x)",
        "OPERAND",
        "sort",
        3584,
        3584,
    ),
    "repetition": Complaint(
        ("jax-ml/jax#33226",),
        """\
arguments = [((64, 32), P("x")), ((64,), P(), 3)]


def f(x, n):
    return jnp.repeat(x, n, axis=0, total_repeat_length=128)
""",
        "    return jnp.repeat(x, n, axis=0, total_repeat_length=128)",
        "LOOKUP",
        "gather",
        28672,
        896,
    ),
    "gradient of an embedding": Complaint(
        ("openxla/xla#42481", "jax-ml/jax#28111"),
        """\
arguments = [((1024, 64), P("x")), ((16, 32), P("y"), 1024)]


def f(table, tokens):
    def loss(table):
        e = table[tokens]
        return jnp.sum(e * e)

    return jax.grad(loss)(table)
""",
        "        e = table[tokens]",
        "LOOKUP",
        "gather",
        360448,
        58368,
        mesh=(4, 2),
    ),
    "accumulated gradients": Complaint(
        ("openxla/xla#6750",),
        """\
arguments = [((64, 64), P()), ((4, 16, 64), P(None, "x"))]


def f(w, batches):
    def step(total, batch):
        def loss(w):
            y = batch @ w
            return jnp.sum(y * y)

        return total + jax.grad(loss)(w), None

    return jax.lax.scan(step, jnp.zeros_like(w), batches)[0]
""",
        "            y = batch @ w",
        "PARTIAL_SUMS",
        "dot_general",
        114688,
        14336,
    ),
    "loop over a sharded dimension": Complaint(
        ("jax-ml/jax#29195",),
        """\
arguments = [((64, 32), P("x"))]


def f(x):
    return jax.lax.map(lambda row: jnp.sin(row) / row.sum(), x)
""",
        "    return jax.lax.map(lambda row: jnp.sin(row) / row.sum(), x)",
        "OPERAND",
        "dynamic_slice",
        7168,
        1344,
    ),
    "eigenvalues of a product": Complaint(
        ("jax-ml/jax#24309",),
        """\
arguments = [((64, 32), P("x"))]


def f(x):
    g = x.T @ x
    return jnp.linalg.eigh(g)[0]
""",
        "    g = x.T @ x",
        "PARTIAL_SUMS",
        "dot_general",
        7168,
        7168,
    ),
    "fewer heads than devices": Complaint(
        ("google-deepmind/gemma#648", "vllm-project/tpu-inference#1429"),
        """\
arguments = [((16, 64), P()), ((64, 64), P(None, "x"))]


def f(h, w):
    k = h @ w
    k = k.reshape(16, 2, 32)
    return jnp.tanh(k)
""",
        "    return jnp.tanh(k)",
        "RESULT",
        "",
        3584,
        768,
    ),
    "padding": Complaint(
        ("EnzymeAD/Enzyme-JAX#822",),
        """\
arguments = [((64, 32), P("x"))]


def f(x):
    return jnp.pad(x, ((4, 4), (0, 0)))
""",
        "    return jnp.pad(x, ((4, 4), (0, 0)))",
        "SHIFT",
        "pad",
        768,
        768,
    ),
}

OWN_PROGRAMS = {
    "sum with the transposed matrix": Complaint(
        (),
        """\
arguments = [((64, 64), P("x", "y"))]


def f(x):
    return x + x.T
""",
        "    return x + x.T",
        "OPERAND",
        "add",
        28672,
        2816,
        mesh=(4, 2),
    ),
}
"""Programs of which no complaint is known."""
