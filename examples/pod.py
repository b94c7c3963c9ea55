"""Compile a program for two thousand devices on a laptop.

An `AbstractMesh` has sizes and names but no devices. Arguments are `ShapeDtypeStruct`s: shapes,
types and shardings without elements. They suffice to trace a function, to propagate its shardings,
to partition it into the program of one device, and to report what that program sends, computes and
stores. Only running it needs the devices.

    python examples/pod.py
"""

from collections.abc import Callable
from typing import Any

import shardir as sd
import shardir.numpy as snp
from shardir import nn
from shardir.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

POD = AbstractMesh((16, 16, 8), ("data", "model", "sequence"))
BATCH, LENGTH, WIDTH, HIDDEN = 256, 2048, 8192, 32768


def described(shape: tuple[int, ...], *spec: Any) -> sd.ShapeDtypeStruct:
    """Return the description of an array: its shape, its type and its sharding."""
    return sd.ShapeDtypeStruct(shape, "bfloat16", sharding=NamedSharding(POD, P(*spec)))


def feed_forward(x: Any, into: Any, out: Any) -> Any:
    """One dense layer of a transformer with its residual."""
    return x + nn.gelu(x @ into) @ out


def main() -> None:
    # Megatron's layout: the hidden dimension is sharded over `model`, so that the layer sends
    # one sum over it.
    x = described((BATCH, LENGTH, WIDTH), "data", "sequence", None)
    into = described((WIDTH, HIDDEN), None, "model")
    out = described((HIDDEN, WIDTH), "model", None)

    compiled = sd.jit(feed_forward).lower(x, into, out).compile()
    print(compiled.as_text())
    kinds = [each.kind for each in compiled.collectives()]
    assert kinds == ["all-reduce"]

    cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
    print(f"{POD.size} devices, each with")
    print(f"  {cost['flops'] / 1e12:.2f} teraflops, {cost['bytes sent'] / 2**20:.0f} MiB sent")
    print(f"  {memory.argument_size_in_bytes / 2**20:.0f} MiB of arguments")
    rows = BATCH // 16 * LENGTH // 8
    assert memory.argument_size_in_bytes == 2 * (rows * WIDTH + 2 * WIDTH * HIDDEN // 16)

    # No program runs on these devices, and they store no arrays.
    rows_on_pod = NamedSharding(POD, P("data"))
    refused("abstract devices", lambda: sd.device_put(snp.zeros(16), rows_on_pod))
    refused("abstract devices", lambda: sd.jit(snp.sin, out_shardings=rows_on_pod)(snp.zeros(16)))


def refused(reason: str, run: Callable[[], Any]) -> None:
    """Check that `run` raises an error that states `reason`."""
    said = ""
    try:
        run()
    except sd.ShardirError as error:
        said = f"{type(error).__name__}: {error}"
    print(said)
    assert reason in said


if __name__ == "__main__":
    main()
