"""Programs of keys of `rbg` and `unsafe_rbg`, and a command that records the numbers of JAX.

`python -m tests.frontend.random.rbg_programs` writes `tests/data/rbg.json`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

SEED = 41
IMPLEMENTATIONS = ("rbg", "unsafe_rbg")
RECORD = Path(__file__).parents[2] / "data" / "rbg.json"


def draw_numbers(numpy: Any, random: Any, key: Any) -> dict[str, Any]:
    return {
        "key": random.key_data(key),
        "bits": random.bits(key, (3, 5)),
        "bits of 8 bits": random.bits(key, (7,), "uint8"),
        "no bits": random.bits(key, (0, 3)),
        "split": random.key_data(random.split(key, (2, 3))),
        "split twice": random.bits(random.split(random.split(key)[1])[0], (4,)),
        "fold_in": random.key_data(random.fold_in(key, 7)),
        "clone": random.key_data(random.clone(key)),
        "uniform": random.uniform(key, (5,)),
        "normal": random.normal(key, (3, 3)),
        "randint": random.randint(key, (6,), 3, 1000),
        "permutation": random.permutation(key, 9),
        "choice": random.choice(key, 9, (4,)),
        "choice without replacement": random.choice(key, 9, (4,), replace=False),
        "categorical": random.categorical(key, numpy.arange(5.0), shape=(6,)),
    }


def draw_batches(library: Any, key: Any) -> dict[str, Any]:
    """Return numbers of mapped functions; the elements of a batch share its first key."""
    random, vmap = library.random, library.vmap
    keys, data = random.split(key, 3), np.arange(3, dtype=np.uint32)
    return {
        "normal of each": vmap(lambda k: random.normal(k, (3,)))(keys),
        "shared key": vmap(lambda i: random.bits(keys[1], (2,)) + i)(data),
        "split of each": random.key_data(vmap(lambda k: random.split(k, 3))(keys)),
        "fold_in of keys": random.key_data(vmap(lambda k: random.fold_in(k, 5))(keys)),
        "fold_in of data": random.key_data(vmap(lambda i: random.fold_in(keys[0], i))(data)),
        "fold_in of both": random.key_data(vmap(random.fold_in)(keys, data)),
        "twice": vmap(vmap(lambda k: random.bits(k, (2,))))(random.split(key, (2, 3))),
        "derived": vmap(lambda k: random.randint(random.split(k)[1], (4,), 0, 100))(keys),
        "gamma of each": vmap(lambda k: random.gamma(k, 2.5, (2,)))(keys),
        "lax.map": library.lax.map(lambda k: random.bits(k, (2,)), keys),
        "lax.map in batches": library.lax.map(lambda k: random.bits(k, (2,)), keys, batch_size=2),
    }


def record() -> None:
    """Write the numbers of the installed JAX."""
    import jax

    rows = {}
    for name in IMPLEMENTATIONS:
        key = jax.random.key(SEED, impl=name)
        drawn = draw_numbers(jax.numpy, jax.random, key) | draw_batches(jax, key)
        rows[name] = {
            each: {"dtype": x.dtype.name, "shape": x.shape, "values": np.ravel(x).tolist()}
            for each, x in drawn.items()
        }
    RECORD.write_text(json.dumps({"jax": jax.__version__, **rows}) + "\n", "utf-8")


if __name__ == "__main__":
    record()
