"""`pmap` over four devices: the programs of the multi-IPU quickstart on shardir.

The file contains every program of the notebook "Multi-IPUs in JAX: pmap quickstart", in its order.
It maps functions over devices without and with communication, names two axes of a grid of devices,
runs different programs on two groups of devices, and computes a cellular automaton whose cells are
on four devices that exchange the cells at their edges. It asserts the numbers of the notebook and
its picture of rule 30.

    python examples/seeds/pmap_quickstart.py
    mpiexec -n 2 python examples/seeds/pmap_quickstart.py
"""

from functools import partial
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax, pmap

# Virtual CPU devices replace the notebook's four IPUs. SHARDIR_CPU_DEVICES has the same effect as
# this call, which must precede the first use of a device.
sd.set_cpu_devices(4)
sd.distributed.initialize(gather=True)  # under mpiexec, of several processes
DEVICES = sd.devices()
DATA = np.arange(12, dtype=np.float32).reshape(4, 3)

RULE_30 = """\
                   ***
                  **  *
                 ** ****
                **  *   *
               ** **** ***
              **  *    *  *
             ** ****  ******
            **  *   ***     *
           ** **** **  *   ***
          **  *    * **** **  *
         ** ****  ** *    * ****
        **  *   ***  **  ** *   *
       ** **** **  *** ***  ** ***
      **  *    * ***   *  ***  *  *
     ** ****  ** *  * *****  *******
    **  *   ***  **** *    ***      *
   ** **** **  ***    **  **  *    ***
  **  *    * ***  *  ** *** ****  **  *
 ** ****  ** *  ******  *   *   *** ****
 *  *   ***  ****     **** *** **   *
"""
"""Twenty steps from one cell, without spaces at the ends of lines."""


def platform() -> None:
    print(f"platform {sd.default_backend()}, {sd.device_count()} devices: {DEVICES}")
    assert sd.default_backend() == "cpu"
    assert sd.device_count() == len(DEVICES) == 4
    assert sd.devices("cpu") == DEVICES
    assert repr(DEVICES[0]) == "CpuDevice(id=0)"


def pure_map() -> None:
    """Map rows, each on its own device, without communication."""

    @pmap
    def square(x: Any) -> Any:
        return x**2

    once = square(DATA)
    print(once, type(once).__name__)
    np.testing.assert_array_equal(np.asarray(once), DATA**2)

    # The next call can use the result directly: its rows are on the right devices.
    twice = square(once)
    print(twice)
    np.testing.assert_array_equal(np.asarray(twice), DATA**4)

    # There is one row on each device, and each can be moved to another device.
    assert [piece.device() for piece in twice.device_buffers] == sd.local_devices()
    moved = sd.device_put(twice[1], DEVICES[3])
    print(repr(moved), "on", moved.device)
    assert repr(moved) == "Array([ 81., 256., 625.], dtype=float32)"
    assert moved.devices() == {DEVICES[3]}
    assert repr(twice[0:1]) == "Array([[ 0.,  1., 16.]], dtype=float32)"


def reduction() -> None:
    """Sum over all devices, by the name of the mapped axis."""

    @partial(pmap, axis_name="i")
    def normalize(x: Any) -> Any:
        return x / lax.psum(x, axis_name="i")

    # Two rows use two of the four devices.
    output = normalize(DATA[0:2])
    print(repr(output))
    assert repr(output) == (
        "Array([[0.        , 0.2       , 0.2857143 ],\n"
        "       [1.        , 0.8       , 0.71428573]], dtype=float32)"
    )
    assert output.devices() == set(DEVICES[:2])
    np.testing.assert_array_equal(np.sum(np.asarray(output), axis=0), [1, 1, 1])


def rows_and_columns() -> None:
    """Sum along one of two nested mapped axes, or along both."""

    @partial(pmap, axis_name="rows")
    @partial(pmap, axis_name="cols")
    def normalize(x: Any) -> Any:
        by_row = x / lax.psum(x, "rows")
        by_column = x / lax.psum(x, "cols")
        by_both = x / lax.psum(x, ("rows", "cols"))
        return by_row, by_column, by_both

    outputs = normalize(np.arange(4.0, dtype=np.float32).reshape(2, 2))
    print(outputs)
    wanted = (
        [[0, 0.25], [1, 0.75]],
        [[0, 1], [0.4, 0.6]],
        [[0, 0.16666667], [0.33333334, 0.5]],
    )
    for output, numbers in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(output), np.array(numbers, np.float32))


def two_groups() -> None:
    """Run two programs on rows that are placed on two groups of devices."""
    groups = DEVICES[:2], DEVICES[2:]
    first = sd.device_put_sharded(list(DATA[:2]), groups[0])
    second = sd.device_put_sharded(list(DATA[2:]), groups[1])

    def by_sum(x: Any) -> Any:
        return x / lax.psum(x, "i")

    def by_mean(x: Any) -> Any:
        return x / lax.pmean(x, "i")

    out0 = pmap(by_sum, axis_name="i", devices=groups[0])(first)
    out1 = pmap(by_mean, axis_name="i", devices=groups[1])(second)
    print(out0, out1, sep="\n")
    np.testing.assert_array_equal(
        np.asarray(out0), np.array([[0, 0.2, 0.2857143], [1, 0.8, 0.71428573]], np.float32)
    )
    means = [[0.8, 0.8235294, 0.84210527], [1.2, 1.1764706, 1.1578947]]
    np.testing.assert_array_equal(np.asarray(out1), np.array(means, np.float32))
    for output, group in zip((out0, out1), groups, strict=True):
        mine = [device for device in group if device in sd.local_devices()]
        assert [piece.device() for piece in output.device_buffers] == mine

    # A replicated argument instead of one row for each device.
    copies = sd.device_put_replicated(DATA[0], groups[1])
    assert copies.shape == (2, 3)
    assert copies.devices() == set(groups[1])


def send_right(x: Any, axis_name: str) -> Any:
    """Send to the next device; the last one sends to the first."""
    ring = [(i, (i + 1) % len(DEVICES)) for i in range(len(DEVICES))]
    return lax.ppermute(x, perm=ring, axis_name=axis_name)


def send_left(x: Any, axis_name: str) -> Any:
    """Send to the previous device; the first one sends to the last."""
    ring = [((i + 1) % len(DEVICES), i) for i in range(len(DEVICES))]
    return lax.ppermute(x, perm=ring, axis_name=axis_name)


@partial(pmap, axis_name="i")
def step(cells: Any) -> Any:
    """One step of rule 30 on a ring of cells, of which every device has a contiguous part.

    A cell depends on both adjacent cells, so each device needs one more cell at either end:
    the last one of the device on its left, and the first one of the device on its right.
    """
    from_right = send_left(cells[:1], "i")
    from_left = send_right(cells[-1:], "i")
    wider = snp.concatenate([from_left, cells, from_right])
    left, center, right = wider[:-2], wider[1:-1], wider[2:]
    return lax.bitwise_xor(left, lax.bitwise_or(center, right))


def picture(board: Any) -> str:
    return "".join("*" if alive else " " for alive in np.asarray(board).ravel()).rstrip()


def cellular_automaton() -> None:
    cells = np.zeros(40, dtype=bool)
    cells[20] = True
    board: Any = cells.reshape(4, 10)
    print(picture(board))
    lines = []
    for _ in range(20):
        board = step(board)
        lines.append(picture(board))
    print("\n".join(lines))
    assert lines == RULE_30.splitlines()


def main() -> None:
    for part in (
        platform,
        pure_map,
        reduction,
        rows_and_columns,
        two_groups,
        cellular_automaton,
    ):
        print(f"== {part.__name__.replace('_', ' ')}")
        part()


if __name__ == "__main__":
    main()
