"""Run by mpiexec: inputs that each process has for itself are compared in every call."""

from collections.abc import Callable
from socket import gethostname
from typing import Any
from unittest import mock

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.backends.mpi.messages import MessageChannel
from shardir.distributed import from_callback, from_process_local, gather_to_all, gather_to_root
from shardir.errors import ShardirError
from shardir.frontend.errors import ArgumentError, DeletedArrayError, NumberRangeError
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.backends.mpi.arrays import W, put, refused, same, sharding

CLAIMS: list[Callable[[], None]] = []
SAME = (
    "pass the same in every process, or each its shard with shardir.distributed.from_process_local"
)
LARGE = np.arange(1 << 15, dtype=np.float32).reshape(8, -1)


def claim(function: Callable[[], None]) -> Callable[[], None]:
    CLAIMS.append(function)
    return function


def told(call: Callable[[], object]) -> str:
    """The first line of the error, without the names of hosts."""
    return refused(ArgumentError, call).partition("\n")[0].replace(f" ({gethostname()})", "")


def mine() -> int:
    return sd.process_index()


def odd() -> bool:
    """Whether this is the last process, which has other numbers than the others."""
    return sd.process_index() == sd.process_count() - 1


def differs(name: str, what: str) -> str:
    last = sd.process_count() - 1
    return (
        f"%{name} of {what} is not placed on devices, and has other elements in process {last} "
        f"than in process 0; {SAME}"
    )


def refuses(f: Callable[..., Any], wanted: str, right: Any, wrong: Any, result: Any) -> None:
    """`f` of a `right` input gives a result; of a `wrong` one in the last process it is refused in
    all, at once and later, and everybody can go on."""
    for _ in range(2):
        same(f(right), result)
        assert told(lambda: f(wrong if odd() else right)) == wanted
    same(f(right), result)


def summed(x: Any, k: Any) -> Any:
    return (x * k).sum()


def looped(x: Any, k: Any) -> Any:
    return lax.while_loop(lambda c: c.sum() < k, lambda c: c * 2, x)


def branched(x: Any, k: Any) -> Any:
    return lax.cond(k > 1, lambda x: x.sum() + x * 0, lambda x: x, x)


def printed(x: Any, k: Any) -> Any:
    sd.debug.callback(lambda k: None, k)
    return (x * k).sum()


def alone(x: Any, k: Any) -> Any:
    return x * k


@claim
def numbers_of_later_calls_are_compared() -> None:
    x = put(W, "x")
    both = put(W, "x", "y")
    for f, result in (
        (summed, W.sum() * 2),
        (alone, W * 2),
        (looped, W),
        (branched, W * 0 + W.sum()),
        (printed, W.sum() * 2),
    ):
        for given in (x, both):
            mapped = sd.jit(f)
            name = f"{f.__name__} (f32[])"
            refuses(lambda k, m=mapped, g=given: m(g, k), differs("k", name), 2.0, 3.0, result)


@claim
def an_argument_that_one_process_cannot_convert_is_an_error_in_all() -> None:
    deleted = snp.asarray(W)
    deleted.delete()
    last = sd.process_count() - 1
    cases: tuple[tuple[Any, Any, type[ShardirError], str], ...] = (
        (2, 2**40, NumberRangeError, "the number 1099511627776 does not fit into int32 (%k); "),
        (np.array(2), np.array(2**40), NumberRangeError,
         "%k has the number 1099511627776, which does not fit into int32; "),
        (snp.asarray(W), deleted, DeletedArrayError, ""),
    )  # fmt: skip
    for f in (summed, alone, branched, printed):
        for right, wrong, kind, text in cases:
            if f is branched and np.ndim(right):
                continue
            mapped, x, given = sd.jit(f), put(W, "x"), wrong if odd() else right

            def call(mapped: Any = mapped, x: Any = x, given: Any = given) -> Any:
                return mapped(x, given)

            for _ in range(3):
                first = refused(kind, call).replace(f" ({gethostname()})", "")
                said = f"process {last} cannot convert an argument of {f.__name__}: "
                assert first.startswith(text if odd() else said + text), first
                same(mapped(x, right), f(W, np.asarray(right)))


@claim
def every_kind_of_input_is_compared() -> None:
    x = put(W, "x")
    wrong = W.copy()
    wrong[7, 11] = 0
    for f, result in ((summed, (W * W).sum()), (alone, W * W)):
        g = sd.jit(f)
        word = differs("k", f"{f.__name__} (f32[8, 12])")
        refuses(lambda k, g=g: g(x, k), word, W, wrong, result)
        refuses(lambda k, g=g: g(x, k), word, W.astype(float), wrong.astype(float), result)
        refuses(lambda k, g=g: g(x, k), word, snp.asarray(W), snp.asarray(wrong), result)
    g = sd.jit(lambda x, k: (x * k["a"][0], k["b"]))
    for right, other, label in (
        ({"a": [2.0], "b": 1}, {"a": [3.0], "b": 1}, "k.a.0 of lambda (f32[])"),
        ({"a": [2.0], "b": 1}, {"a": [2.0], "b": 2}, "k.b of lambda (i32[])"),
    ):
        name, _, what = label.partition(" of ")
        refuses(lambda k: g(x, k)[0], differs(name, what), right, other, W * 2)
    drawn = sd.jit(lambda x, key: x + sd.random.uniform(key, ()))
    right, other = sd.random.key(0), sd.random.key(1)
    want = W + np.asarray(sd.random.uniform(right, ()))
    refuses(lambda key: drawn(x, key), differs("key", "lambda (key[])"), right, other, want)


@claim
def large_inputs_are_compared() -> None:
    x = put(LARGE, "x")
    wrong = LARGE.copy()
    wrong[-1, -1] += 1
    g = sd.jit(lambda x, k: (x @ k.T).max())
    want = np.float32(np.max(LARGE @ LARGE.T))
    for right, other in ((LARGE, wrong), (snp.asarray(LARGE), snp.asarray(wrong))):
        assert abs(float(g(x, right)) / want - 1) < 1e-5
        word = differs("k", f"lambda (f32[8, {LARGE.shape[1]}])")
        assert told(lambda: g(x, other if odd() else right)) == word  # noqa: B023
        assert abs(float(g(x, right)) / want - 1) < 1e-5


@claim
def all_ways_to_call_compare() -> None:
    x = put(W, "x")
    refuses(lambda k: x * k, differs("y", "multiply (f32[])"), 2.0, 3.0, W * 2)
    compiled = sd.jit(summed).lower(x, 2.0).compile()
    refuses(lambda k: compiled(x, k), differs("k", "summed (f32[])"), 2.0, 3.0, W.sum() * 2)
    mesh = x.sharding.mesh
    cut = sd.shard_map(
        lambda x, k: lax.ppermute(x * k, "x", [(i, (i + 1) % 4) for i in range(4)]),
        mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"),
    )  # fmt: skip
    assert "places other elements than process 0" in told(lambda: cut(x, 3.0 if odd() else 2.0))
    inside = sd.jit(cut)
    want = np.roll(W, 2, 0) * 2
    refuses(lambda k: inside(x, k), differs("k", "lambda (f32[])"), 2.0, 3.0, want)
    slope = sd.grad(lambda k: (x * k).sum())
    refuses(slope, differs("k", "lambda (f32[])"), 2.0, 3.0, W.sum())
    rows = np.arange(8.0, dtype=np.float32)
    each = sd.pmap(lambda v, k: lax.psum(v * k, "i"), "i", in_axes=(0, None))
    total = np.full(8, rows.sum() * 2, np.float32)
    assert "places other elements than process 0" in told(lambda: each(rows, 3.0 if odd() else 2.0))
    same(each(rows, 2.0), total)


@claim
def what_was_donated_is_there_after_an_error() -> None:
    step = sd.jit(lambda w, k: (w * k, (w * k).sum()), donate_argnums=0)
    w, _ = step(put(LARGE, "x"), 1.0)
    for _ in range(2):
        assert told(lambda: step(w, 3.0 if odd() else 2.0)) == differs("k", "lambda (f32[])")
        same(w, LARGE)
    before = w
    w, _ = step(w, 2.0)
    assert before.is_deleted()
    same(w, LARGE * 2)


@claim
def an_array_that_one_process_has_placed_is_no_difference() -> None:
    x = put(W, "x")
    f = sd.jit(lambda x, k: (x + k).sum(), in_shardings=(sharding("x"), sharding("x")))
    for _ in range(3):
        # Each process knows of one call like this alone, so that all take part in the comparison.
        k = x if odd() else W
        assert float(f(x, k)) == 2 * W.sum()


def messages(call: Callable[[], object]) -> int:
    """How many exchanges this process posts in a call."""
    posted: list[int] = []
    post = MessageChannel.post

    def counting(self: MessageChannel, *args: Any) -> Any:
        posted.append(1)
        return post(self, *args)

    with mock.patch.object(MessageChannel, "post", counting):
        call()
    return len(posted)


@claim
def placed_arrays_cost_no_message() -> None:
    x = put(W, "x")
    double, scaled = sd.jit(lambda x: x * 2), sd.jit(alone)
    same(double(x), W * 2)
    same(scaled(x, 2.0), W * 2)
    assert messages(lambda: double(x)) == 0
    # No collective takes the digest of the number along.
    assert messages(lambda: scaled(x, 2.0)) == (sd.process_count() - 1).bit_length()


@claim
def digests_travel_with_what_connects_all_processes() -> None:
    square = sd.make_mesh((2, 4), ("a", "b"))
    large = np.arange(1 << 18, dtype=np.float32).reshape(8, -1) / (1 << 18)
    x, z = put(large, "x"), sd.device_put(W.T[:8], NamedSharding(square, P("a", "b")))

    def mapped(f: Callable[..., Any], mesh: sd.Mesh, spec: P, out: P) -> Any:
        return sd.jit(sd.shard_map(f, mesh=mesh, in_specs=(spec, P()), out_specs=out))

    scattered = mapped(
        lambda x, k: lax.psum_scatter(x[0] * k, "x", tiled=True), x.sharding.mesh, P("x"), P("x")
    )
    turned = mapped(
        lambda x, k: lax.all_to_all(x * k, "x", 1, 0, tiled=True), x.sharding.mesh, P("x"),
        P(None, "x"),
    )  # fmt: skip
    by_axes = mapped(lambda z, k: lax.pmax(lax.psum(z * k, "b"), "a"), square, P("a", "b"), P())
    wide = W.T[:8].reshape(2, 4, 4, 2).sum(2).max(0)
    for f, given, result in (
        (sd.jit(lambda x, k: (x * k).sum(0)), x, large.sum(0) * 2),
        (scattered, x, large[::2].sum(0) * 2),
        (turned, x, large * 2),
        (by_axes, z, wide * 2),
    ):
        for _ in range(2):
            np.testing.assert_allclose(gather_to_all(f(given, 2.0)), result, rtol=1e-5)
            found = told(lambda: f(given, 3.0 if odd() else 2.0))  # noqa: B023
            assert "k of " in found or "args" in found
            assert "has other elements in process" in found
        k = sd.device_put(np.float32(2), NamedSharding(given.sharding.mesh, P()))
        np.testing.assert_allclose(gather_to_all(f(given, k)), result, rtol=1e-5)
        if sd.process_count() != 3:  # whose devices are no blocks of the mesh
            assert messages(lambda: f(given, 2.0)) == messages(lambda: f(given, k))  # noqa: B023


@claim
def replicated_parts_are_compared() -> None:
    one = np.full(3, mine(), np.float32)
    everywhere = sharding()
    start = " has other elements in process 1 than in process 0 for the "
    end = (
        f", which {everywhere} replicates; pass the same in every process, or a sharding that "
        "gives each its own shard"
    )
    part = "shard [0:3] of an array of type f32[3]"
    for word, make in (
        ("make_array_from_process_local_data", lambda: from_process_local(one, everywhere)),
        ("make_array_from_callback", lambda: from_callback((3,), everywhere, lambda _: one)),
        (
            "make_array_from_single_device_arrays",
            lambda: sd.make_array_from_single_device_arrays(
                (3,), everywhere, [sd.device_put(one, d) for d in sd.local_devices()]
            ),
        ),
    ):
        assert told(make) == word + start + part + end
    number = f"element of an array of type f32[]{end}"
    assert told(lambda: from_process_local(one[0], everywhere)) == (
        f"make_array_from_process_local_data{start}{number}"
    )
    same(from_process_local(W, everywhere), W)
    # Along one axis alone: parts that several processes hold, and parts that one does.
    some = sharding(None, "y")
    wrong = W.copy()
    wrong[0, 11] += mine()
    text = told(lambda: from_callback((8, 12), some, lambda index: wrong[index]))
    assert text.startswith("make_array_from_callback has other elements in process 1 than in ")
    assert "for the shard [0:8, 6:12] of an array of type f32[8, 12]" in text
    same(from_callback((8, 12), some, lambda index: W[index]), W)
    same(from_callback((8, 12), sharding("x", "y"), lambda index: W[index]), W)
    text = told(lambda: sd.device_put_replicated(one, sd.devices()))
    assert text.startswith("process 1 places other elements than process 0 on devices of several")


@claim
def a_setting_leaves_it_out() -> None:
    x = put(W, "x")
    with sd.config(check_replicated_inputs=False):
        f = sd.jit(alone)
        assert told(lambda: f(x, float(mine()))).startswith("%k of alone (f32[]) is not placed")
        same(f(x, 2.0), W * 2)
        made = f(x, float(mine()))  # of which nobody knows any more
        for shard in made.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), W[shard.index] * mine())
        from_process_local(np.full(3, mine(), np.float32), sharding())
    assert told(lambda: sd.jit(alone)(x, float(mine()))).startswith("%k of alone (f32[]) is not")


@claim
def the_root_alone_has_what_is_gathered() -> None:
    tree = {"x": put(W, "x"), "n": (3, np.arange(2))}
    for root in range(sd.process_count()):
        found = gather_to_root(tree, root)
        if mine() == root:
            np.testing.assert_array_equal(found["x"], W)
            np.testing.assert_array_equal(found["n"][1], [0, 1])
        else:
            assert found is None
    np.testing.assert_array_equal(gather_to_all(tree)["x"], W)


def main() -> None:
    sd.distributed.initialize()
    for each in CLAIMS:
        each()
    print("all", len(CLAIMS))


if __name__ == "__main__":
    main()
