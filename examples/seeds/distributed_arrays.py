"""Distributed arrays and automatic parallelisation: the tutorial's programs on shardir.

The file contains every program of the JAX tutorial "Distributed arrays and automatic
parallelization", in its order, written for shardir, with smaller sizes for two cores. It asserts
what the document prints: drawings, shapes, errors, random numbers, and that the results on several
devices equal those of one device. The tutorial's machine arranges its eight chips as a torus (0 1 2
3 6 7 4 5); virtual CPU devices have no topology, so the program states the order where a drawing
shows it.

    python examples/seeds/distributed_arrays.py
    mpiexec -n 2 python examples/seeds/distributed_arrays.py
"""

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir.experimental import mesh_utils
from shardir.sharding import Mesh, NamedSharding, PartitionSpec as P, PositionalSharding

SIZE = 256
TORUS = [0, 1, 2, 3, 6, 7, 4, 5]

GRID = """\
┌──────────┬──────────┐
│  CPU 0   │  CPU 1   │
├──────────┼──────────┤
│  CPU 2   │  CPU 3   │
├──────────┼──────────┤
│  CPU 4   │  CPU 5   │
├──────────┼──────────┤
│  CPU 6   │  CPU 7   │
└──────────┴──────────┘
"""
TORUS_GRID = (
    GRID.replace("4   │  CPU 5", "6   │  CPU X").replace("6   │  CPU 7", "4   │  CPU 5")
).replace("X", "7")
ROWS = """\
┌───────────────────────┐
│        CPU 0,1        │
├───────────────────────┤
│        CPU 2,3        │
├───────────────────────┤
│        CPU 4,5        │
├───────────────────────┤
│        CPU 6,7        │
└───────────────────────┘
"""
COLUMNS = """\
┌───────────┬───────────┐
│           │           │
│           │           │
│           │           │
│           │           │
│CPU 0,2,4,6│CPU 1,3,5,7│
│           │           │
│           │           │
│           │           │
│           │           │
└───────────┴───────────┘
"""
HALVES = """\
┌───────────────────────┐
│                       │
│      CPU 0,2,4,6      │
│                       │
│                       │
├───────────────────────┤
│                       │
│      CPU 1,3,5,7      │
│                       │
│                       │
└───────────────────────┘
"""
WIDE = """\
┌───────┬───────┬───────┬───────┐
│       │       │       │       │
│ CPU 0 │ CPU 1 │ CPU 2 │ CPU 3 │
│       │       │       │       │
│       │       │       │       │
├───────┼───────┼───────┼───────┤
│       │       │       │       │
│ CPU 4 │ CPU 5 │ CPU 6 │ CPU 7 │
│       │       │       │       │
│       │       │       │       │
└───────┴───────┴───────┴───────┘
"""


def drawing(show: Callable[[], None]) -> str:
    """Return what `show` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        show()
    return out.getvalue()


def picture(array: Any) -> str:
    """Print the box drawing of an array, and return it."""
    text = drawing(lambda: sd.debug.visualize_array_sharding(array))
    print(text, end="")
    return text


def box(rows: int, label: Callable[[int], str], width: int = 23) -> str:
    """A column of one-line boxes."""
    lines = [f"│{label(i):^{width}}│" for i in range(rows)]
    body = f"\n├{'─' * width}┤\n".join(lines)
    return f"┌{'─' * width}┐\n{body}\n└{'─' * width}┘\n"


def tall_box(label: str) -> str:
    """One box around a whole array."""
    empty = f"│{'':23}│\n" * 4
    return f"┌{'─' * 23}┐\n{empty}│{label:^23}│\n{empty}└{'─' * 23}┘\n"


def refusal(compute: Callable[[], Any]) -> str:
    """Print the message of the `ValueError` that `compute` raises, and return it."""
    try:
        compute()
    except ValueError as error:
        print(f"{type(error).__name__}: {error}")
        return str(error)
    raise AssertionError("arrays on different devices were added")


def quick_example() -> None:
    sharding = PositionalSharding(np.array(sd.devices())[TORUS])
    x = sd.random.normal(sd.random.key(0), (SIZE, SIZE))
    y = sd.device_put(x, sharding.reshape(4, 2))
    assert picture(y) == TORUS_GRID
    z = snp.sin(y)
    assert picture(z) == TORUS_GRID
    np.testing.assert_allclose(np.asarray(z), np.sin(np.asarray(x)), rtol=1e-6, atol=1e-6)


def positional_shardings() -> None:
    x = sd.random.normal(sd.random.key(0), (SIZE, SIZE))
    assert picture(x) == tall_box(f"CPU {sd.local_devices()[0].id}")

    sharding = PositionalSharding(mesh_utils.create_device_mesh((8,)))
    x = sd.device_put(x, sharding.reshape(8, 1))
    assert picture(x) == box(8, lambda i: f"CPU {i}")
    torus = PositionalSharding(np.array(sd.devices())[TORUS])
    assert str(torus) == (
        "PositionalSharding([{CPU 0} {CPU 1} {CPU 2} {CPU 3} {CPU 6} {CPU 7} {CPU 4} {CPU 5}])"
    )
    indent = " " * 20
    column = f"\n{indent}".join(f"[{{CPU {i}}}]" for i in TORUS)
    assert str(torus.reshape(8, 1)) == f"PositionalSharding([{column}])"
    pairs = [TORUS[i : i + 2] for i in range(0, 8, 2)]
    square = f"\n{indent}".join(f"[{{CPU {a}}} {{CPU {b}}}]" for a, b in pairs)
    assert str(torus.reshape(4, 2)) == f"PositionalSharding([{square}])"

    sharding = sharding.reshape(4, 2)
    assert picture(sd.device_put(x, sharding)) == GRID
    lane = sharding.reshape(1, 8)
    y = sd.device_put(x, lane)
    assert picture(y).splitlines()[5] == "│" + "│".join(f" CPU {i} " for i in range(8)) + "│"

    sharding = lane.reshape(4, 2)
    replicated = sharding.replicate(axis=0, keepdims=True)
    assert str(replicated) == "PositionalSharding([[{CPU 0, 2, 4, 6} {CPU 1, 3, 5, 7}]])"
    assert picture(sd.device_put(x, replicated)) == COLUMNS
    assert sharding.replicate(0).shape == (1, 2)
    assert sharding.replicate(1).shape == (4, 1)
    assert picture(sd.device_put(x, sharding.replicate(1))) == ROWS


def named_shardings() -> None:
    x = sd.random.normal(sd.random.key(0), (SIZE, SIZE))
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), axis_names=("a", "b"))

    def put(spec: P) -> Any:
        return sd.device_put(x, NamedSharding(mesh, spec))

    assert picture(put(P("a", "b"))) == GRID
    swapped = picture(put(P("b", "a"))).splitlines()
    assert swapped[2] == "│ CPU 0 │ CPU 2 │ CPU 4 │ CPU 6 │"
    assert swapped[7] == "│ CPU 1 │ CPU 3 │ CPU 5 │ CPU 7 │"
    assert picture(put(P("a", None))) == ROWS
    assert picture(put(P(None, "b"))) == COLUMNS
    assert picture(put(P(None, "a"))).splitlines()[5] == "│CPU 0,1│CPU 2,3│CPU 4,5│CPU 6,7│"
    assert picture(put(P(("a", "b"), None))) == box(8, lambda i: f"CPU {i}")


def computation_follows_sharding() -> None:
    x = sd.random.normal(sd.random.key(0), (SIZE, SIZE))
    sharding = PositionalSharding(mesh_utils.create_device_mesh((8,)))
    x = sd.device_put(x, sharding.reshape(4, 2))
    assert picture(x) == GRID
    assert picture(snp.sin(x)) == GRID

    y = sd.device_put(x, sharding.reshape(4, 2).replicate(1))
    z = sd.device_put(x, sharding.reshape(4, 2).replicate(0))
    assert picture(y) == ROWS
    assert picture(z) == COLUMNS
    w = snp.dot(y, z)
    assert picture(w) == GRID

    single = sd.device_put(x, sd.devices()[0])
    assert picture(single) == tall_box("CPU 0")
    assert np.allclose(snp.dot(single, single), snp.dot(y, z), atol=1e-3)
    assert picture(snp.copy(w)) == GRID


def disagreeing_placements() -> None:
    x = sd.random.normal(sd.random.key(0), (SIZE, SIZE))
    devices = sd.devices()
    halves = [PositionalSharding(half).reshape(2, 2) for half in (devices[:4], devices[4:])]
    y, z = (sd.device_put(x, sharding) for sharding in halves)
    message = refusal(lambda: y + z)
    assert "[0, 1, 2, 3]" in message
    assert "[4, 5, 6, 7]" in message

    sharding1 = PositionalSharding(devices)
    sharding2 = PositionalSharding([devices[i] for i in TORUS])
    y = sd.device_put(x, sharding1.reshape(4, 2))
    z = sd.device_put(x, sharding2.reshape(4, 2))
    message = refusal(lambda: y + z)
    assert "[0, 1, 2, 3, 4, 5, 6, 7]" in message
    assert "[0, 1, 2, 3, 6, 7, 4, 5]" in message

    y = sd.device_put(x, sharding1.reshape(4, 2))
    assert picture(y + snp.ones_like(y)) == GRID
    assert picture(y + snp.arange(y.size).reshape(y.shape)) == GRID
    print("no error!")


def constraints() -> None:
    sharding = PositionalSharding(mesh_utils.create_device_mesh((8,)))
    x = sd.random.normal(sd.random.key(0), (SIZE, SIZE))
    x = sd.device_put(x, sharding.reshape(4, 2))

    @sd.jit
    def reshaped(x: Any) -> Any:
        x = x + 1
        return sd.lax.with_sharding_constraint(x, sharding.reshape(2, 4))

    assert picture(x) == GRID
    y = reshaped(x)
    assert picture(y) == WIDE
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x) + 1)

    @sd.jit
    def replicated(x: Any) -> Any:
        x = x + 1
        return sd.lax.with_sharding_constraint(x, sharding.replicate())

    y = replicated(x)
    assert picture(y) == tall_box("CPU 0,1,2,3,4,5,6,7")
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x) + 1)


def predict(params: Any, inputs: Any) -> Any:
    for W, b in params:
        outputs = snp.dot(inputs, W) + b
        inputs = snp.maximum(outputs, 0)
    return outputs


def loss(params: Any, batch: Any) -> Any:
    inputs, targets = batch
    predictions = predict(params, inputs)
    return snp.mean(snp.sum((predictions - targets) ** 2, axis=-1))


loss_jit = sd.jit(loss)
gradfun = sd.jit(sd.grad(loss))


def init_layer(key: Any, n_in: int, n_out: int) -> Any:
    k1, k2 = sd.random.split(key)
    W = sd.random.normal(k1, (n_in, n_out)) / snp.sqrt(n_in)
    b = sd.random.normal(k2, (n_out,))
    return W, b


def init_model(key: Any, layer_sizes: list[int], batch_size: int) -> Any:
    key, *keys = sd.random.split(key, len(layer_sizes))
    params = list(map(init_layer, keys, layer_sizes[:-1], layer_sizes[1:]))
    key, *keys = sd.random.split(key, 3)
    inputs = sd.random.normal(keys[0], (batch_size, layer_sizes[0]))
    targets = sd.random.normal(keys[1], (batch_size, layer_sizes[-1]))
    return params, (inputs, targets)


def descend(params: Any, batch: Any, steps: int, step_size: float) -> Any:
    for _ in range(steps):
        grads = gradfun(params, batch)
        params = [
            (W - step_size * dW, b - step_size * db)
            for (W, b), (dW, db) in zip(params, grads, strict=True)
        ]
    return params


def neural_network() -> None:
    params, batch = init_model(sd.random.key(0), [98, 256, 256, 256, 10], 256)
    plain = float(loss_jit(params, batch))
    trained = float(loss_jit(descend(params, batch, 5, 1e-3), batch))
    assert trained < plain

    sharding = PositionalSharding(sd.devices()).reshape(8, 1)
    batch = sd.device_put(batch, sharding)
    params = sd.device_put(params, sharding.replicate())
    np.testing.assert_allclose(float(loss_jit(params, batch)), plain, rtol=2e-6)
    moved = descend(params, batch, 5, 1e-3)
    np.testing.assert_allclose(float(loss_jit(moved, batch)), trained, rtol=1e-4)

    sharding = sharding.reshape(4, 2)
    batch = sd.device_put(batch, sharding.replicate(1))
    for part in batch:
        text = picture(part)
        assert [line.strip("│ ") for line in text.splitlines()[1::2]] == [
            "CPU 0,1", "CPU 2,3", "CPU 4,5", "CPU 6,7",
        ]  # fmt: skip
    (W1, b1), (W2, b2), (W3, b3), (W4, b4) = params
    W1 = sd.device_put(W1, sharding.replicate())
    b1 = sd.device_put(b1, sharding.replicate())
    W2 = sd.device_put(W2, sharding.replicate(0))
    b2 = sd.device_put(b2, sharding.replicate(0))
    W3 = sd.device_put(W3, sharding.replicate(0).T)
    b3 = sd.device_put(b3, sharding.replicate())
    W4 = sd.device_put(W4, sharding.replicate())
    b4 = sd.device_put(b4, sharding.replicate())
    params = (W1, b1), (W2, b2), (W3, b3), (W4, b4)
    assert picture(W2) == COLUMNS
    assert picture(W3) == HALVES
    np.testing.assert_allclose(float(loss_jit(params, batch)), plain, rtol=2e-6)
    params = descend(params, batch, 5, 1e-3)
    np.testing.assert_allclose(float(loss_jit(params, batch)), trained, rtol=1e-4)
    (W1, b1), (W2, b2), (W3, b3), (W4, b4) = params
    assert picture(W2) == COLUMNS
    assert picture(W3) == HALVES


STABLE = [
    0.72503686, 1.8532515, 2.983416, 3.083253, 4.0332246, 5.4782867, 6.1720605, 7.6900277,
    8.602836, 9.810046, 10.861367, 11.907651, 12.330483, 13.456195, 14.808557, 15.960099,
    16.067581, 17.739723, 18.335474, 19.46401, 20.390276, 21.116539, 22.858128, 23.223194,
]  # fmt: skip
"""Return random numbers of the original scheme of counters."""
PARTITIONABLE = [
    0.48870957, 1.6797972, 2.6162715, 3.561016, 4.4506445, 5.585866, 6.0748096, 7.775133,
    8.698959, 9.818634, 10.350306, 11.87282, 12.925881, 13.86013, 14.477554, 15.818481,
    16.711355, 17.586697, 18.073738, 19.777622, 20.404566, 21.119123, 22.026257, 23.63918,
]  # fmt: skip
"""Return random numbers of the partitionable scheme, shardir's default."""


def random_numbers() -> None:
    @sd.jit
    def add_noise(key: Any, x: Any) -> Any:
        return x + sd.random.uniform(key, x.shape)

    key = sd.random.key(42)
    x = sd.device_put(snp.arange(24), PositionalSharding(sd.devices()))
    ring = "│" + "│".join(f" CPU {i} " for i in range(8)) + "│"
    # The original scheme hashes its counters in pairs, one of each half, and concatenates the
    # halves: random words are sent to the devices of their positions. In the
    # partitionable scheme a word depends on its own position alone. The setting is of this block.
    for partitionable, numbers in ((False, STABLE), (True, PARTITIONABLE)):
        with sd.config(threefry_partitionable=partitionable):
            drawn = add_noise(key, x)
            assert picture(drawn).splitlines()[1] == ring
            compiled = add_noise.lower(key, x).compile()
            communicating = "collective-permute" in compiled.as_text()
            print("Communicating?", communicating)
            assert communicating is not partitionable
            print("Partitionable:" if partitionable else "Stable:", drawn, sep="\n")
            np.testing.assert_array_equal(np.asarray(drawn), np.array(numbers, np.float32))


def main() -> None:
    sd.distributed.initialize(gather=True)  # under mpiexec, of several processes
    if len(sd.devices()) < 8:
        raise SystemExit("the tutorial needs eight devices; set SHARDIR_CPU_DEVICES=8")
    for part in (
        quick_example,
        positional_shardings,
        named_shardings,
        computation_follows_sharding,
        disagreeing_placements,
        constraints,
        neural_network,
        random_numbers,
    ):
        print(f"== {part.__name__.replace('_', ' ')}")
        part()


if __name__ == "__main__":
    main()
