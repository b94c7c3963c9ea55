"""Run in several processes: inputs that exist once per process are compared in every call."""

from collections.abc import Callable
from socket import gethostname
from typing import Any
from unittest import mock

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.backends.distributed.messages import MessageChannel
from shardir.distributed import from_callback, from_process_local, gather_to_all, gather_to_root
from shardir.errors import ShardirError
from shardir.frontend.errors import ArgumentError, DeletedArrayError, NumberRangeError
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.backends.distributed.distributed_arrays import (
    W,
    assert_gathered_equal,
    error_message,
    put_on_mesh,
    sharding,
)

CHECKS: list[Callable[[], None]] = []
PASS_THE_SAME = (
    "pass the same in every process, or each its shard with shardir.distributed.from_process_local"
)
LARGE = np.arange(1 << 15, dtype=np.float32).reshape(8, -1)


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS.append(function)
    return function


def first_line(call: Callable[[], object]) -> str:
    """Return the first line of an error without host names."""
    return error_message(ArgumentError, call).partition("\n")[0].replace(f" ({gethostname()})", "")


def own_index() -> int:
    return sd.process_index()


def is_last_process() -> bool:
    """Return whether this is the last process, whose inputs differ."""
    return sd.process_index() == sd.process_count() - 1


def mismatch_text(name: str, what: str) -> str:
    last = sd.process_count() - 1
    return (
        f"%{name} of {what} is not placed on devices, and has other elements in process {last} "
        f"than in process 0; {PASS_THE_SAME}"
    )


def check_mismatch_is_rejected(
    f: Callable[..., Any], expected: str, right: Any, wrong: Any, result: Any
) -> None:
    """Check that `f` accepts equal inputs, and that all processes reject a differing input of the
    last process, in the first and in later calls, and can continue."""
    for _ in range(2):
        assert_gathered_equal(f(right), result)
        assert first_line(lambda: f(wrong if is_last_process() else right)) == expected
    assert_gathered_equal(f(right), result)


def sum_product(x: Any, k: Any) -> Any:
    return (x * k).sum()


def double_until_sum(x: Any, k: Any) -> Any:
    return lax.while_loop(lambda c: c.sum() < k, lambda c: c * 2, x)


def add_sum_if_above_one(x: Any, k: Any) -> Any:
    return lax.cond(k > 1, lambda x: x.sum() + x * 0, lambda x: x, x)


def sum_after_callback(x: Any, k: Any) -> Any:
    sd.debug.callback(lambda k: None, k)
    return (x * k).sum()


def scale_by(x: Any, k: Any) -> Any:
    return x * k


@check
def inputs_of_later_calls_are_compared() -> None:
    x = put_on_mesh(W, "x")
    both = put_on_mesh(W, "x", "y")
    for f, result in (
        (sum_product, W.sum() * 2),
        (scale_by, W * 2),
        (double_until_sum, W),
        (add_sum_if_above_one, W * 0 + W.sum()),
        (sum_after_callback, W.sum() * 2),
    ):
        for given in (x, both):
            mapped = sd.jit(f)
            name = f"{f.__name__} (f32[])"
            check_mismatch_is_rejected(
                lambda k, m=mapped, g=given: m(g, k), mismatch_text("k", name), 2.0, 3.0, result
            )


@check
def every_kind_of_input_is_compared() -> None:
    x = put_on_mesh(W, "x")
    wrong = W.copy()
    wrong[7, 11] = 0
    for f, result in ((sum_product, (W * W).sum()), (scale_by, W * W)):
        g = sd.jit(f)
        expected = mismatch_text("k", f"{f.__name__} (f32[8, 12])")
        check_mismatch_is_rejected(lambda k, g=g: g(x, k), expected, W, wrong, result)
        check_mismatch_is_rejected(
            lambda k, g=g: g(x, k), expected, W.astype(float), wrong.astype(float), result
        )
        check_mismatch_is_rejected(
            lambda k, g=g: g(x, k), expected, snp.asarray(W), snp.asarray(wrong), result
        )
    g = sd.jit(lambda x, k: (x * k["a"][0], k["b"]))
    for right, other, label in (
        ({"a": [2.0], "b": 1}, {"a": [3.0], "b": 1}, "k.a.0 of lambda (f32[])"),
        ({"a": [2.0], "b": 1}, {"a": [2.0], "b": 2}, "k.b of lambda (i32[])"),
    ):
        name, _, what = label.partition(" of ")
        check_mismatch_is_rejected(
            lambda k: g(x, k)[0], mismatch_text(name, what), right, other, W * 2
        )
    drawn = sd.jit(lambda x, key: x + sd.random.uniform(key, ()))
    key, other_key = sd.random.key(0), sd.random.key(1)
    want = W + np.asarray(sd.random.uniform(key, ()))
    check_mismatch_is_rejected(
        lambda key: drawn(x, key), mismatch_text("key", "lambda (key[])"), key, other_key, want
    )


@check
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
    for f in (sum_product, scale_by, add_sum_if_above_one, sum_after_callback):
        for right, wrong, kind, text in cases:
            if f is add_sum_if_above_one and np.ndim(right):
                continue
            mapped, x, given = sd.jit(f), put_on_mesh(W, "x"), wrong if is_last_process() else right

            def call(mapped: Any = mapped, x: Any = x, given: Any = given) -> Any:
                return mapped(x, given)

            for _ in range(3):
                first = error_message(kind, call).replace(f" ({gethostname()})", "")
                stated = f"process {last} cannot convert an argument of {f.__name__}: "
                assert first.startswith(text if is_last_process() else stated + text), first
                assert_gathered_equal(mapped(x, right), f(W, np.asarray(right)))


@check
def large_inputs_are_compared() -> None:
    x = put_on_mesh(LARGE, "x")
    wrong = LARGE.copy()
    wrong[-1, -1] += 1
    g = sd.jit(lambda x, k: (x @ k.T).max())
    want = np.float32(np.max(LARGE @ LARGE.T))
    for right, other in ((LARGE, wrong), (snp.asarray(LARGE), snp.asarray(wrong))):
        assert abs(float(g(x, right)) / want - 1) < 1e-5
        expected = mismatch_text("k", f"lambda (f32[8, {LARGE.shape[1]}])")
        assert first_line(lambda: g(x, other if is_last_process() else right)) == expected  # noqa: B023
        assert abs(float(g(x, right)) / want - 1) < 1e-5


@check
def all_kinds_of_calls_compare_inputs() -> None:
    x = put_on_mesh(W, "x")
    check_mismatch_is_rejected(
        lambda k: x * k, mismatch_text("y", "multiply (f32[])"), 2.0, 3.0, W * 2
    )
    compiled = sd.jit(sum_product).lower(x, 2.0).compile()
    check_mismatch_is_rejected(
        lambda k: compiled(x, k), mismatch_text("k", "sum_product (f32[])"), 2.0, 3.0, W.sum() * 2
    )
    mesh = x.sharding.mesh
    permuted = sd.shard_map(
        lambda x, k: lax.ppermute(x * k, "x", [(i, (i + 1) % 4) for i in range(4)]),
        mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"),
    )  # fmt: skip
    assert "places other elements than process 0" in first_line(
        lambda: permuted(x, 3.0 if is_last_process() else 2.0)
    )
    inside = sd.jit(permuted)
    want = np.roll(W, 2, 0) * 2
    check_mismatch_is_rejected(
        lambda k: inside(x, k), mismatch_text("k", "lambda (f32[])"), 2.0, 3.0, want
    )
    slope = sd.grad(lambda k: (x * k).sum())
    check_mismatch_is_rejected(slope, mismatch_text("k", "lambda (f32[])"), 2.0, 3.0, W.sum())
    rows = np.arange(8.0, dtype=np.float32)
    each = sd.pmap(lambda v, k: lax.psum(v * k, "i"), "i", in_axes=(0, None))
    total = np.full(8, rows.sum() * 2, np.float32)
    assert "places other elements than process 0" in first_line(
        lambda: each(rows, 3.0 if is_last_process() else 2.0)
    )
    assert_gathered_equal(each(rows, 2.0), total)


@check
def donated_arguments_survive_an_error() -> None:
    step = sd.jit(lambda w, k: (w * k, (w * k).sum()), donate_argnums=0)
    w, _ = step(put_on_mesh(LARGE, "x"), 1.0)
    for _ in range(2):
        assert first_line(lambda: step(w, 3.0 if is_last_process() else 2.0)) == mismatch_text(
            "k", "lambda (f32[])"
        )
        assert_gathered_equal(w, LARGE)
    before = w
    w, _ = step(w, 2.0)
    assert before.is_deleted()
    assert_gathered_equal(w, LARGE * 2)


@check
def an_array_placed_by_one_process_is_accepted() -> None:
    x = put_on_mesh(W, "x")
    f = sd.jit(lambda x, k: (x + k).sum(), in_shardings=(sharding("x"), sharding("x")))
    for _ in range(3):
        # Each process has one call like this in its cache, so that all take part in the comparison.
        k = x if is_last_process() else W
        assert float(f(x, k)) == 2 * W.sum()


def count_messages(call: Callable[[], object]) -> int:
    """Return the number of messages that this process posts in a call."""
    posted: list[int] = []
    post = MessageChannel.post

    def count_post(self: MessageChannel, *args: Any) -> Any:
        posted.append(1)
        return post(self, *args)

    with mock.patch.object(MessageChannel, "post", count_post):
        call()
    return len(posted)


@check
def placed_arrays_need_no_message() -> None:
    x = put_on_mesh(W, "x")
    double, scaled = sd.jit(lambda x: x * 2), sd.jit(scale_by)
    assert_gathered_equal(double(x), W * 2)
    assert_gathered_equal(scaled(x, 2.0), W * 2)
    assert count_messages(lambda: double(x)) == 0
    # No collective carries the digest of the number.
    assert count_messages(lambda: scaled(x, 2.0)) == (sd.process_count() - 1).bit_length()


@check
def collectives_of_all_processes_carry_digests() -> None:
    square = sd.make_mesh((2, 4), ("a", "b"))
    large = np.arange(1 << 18, dtype=np.float32).reshape(8, -1) / (1 << 18)
    x, z = put_on_mesh(large, "x"), sd.device_put(W.T[:8], NamedSharding(square, P("a", "b")))

    def jit_shard_map(f: Callable[..., Any], mesh: sd.Mesh, spec: P, out: P) -> Any:
        return sd.jit(sd.shard_map(f, mesh=mesh, in_specs=(spec, P()), out_specs=out))

    scattered = jit_shard_map(
        lambda x, k: lax.psum_scatter(x[0] * k, "x", tiled=True), x.sharding.mesh, P("x"), P("x")
    )
    turned = jit_shard_map(
        lambda x, k: lax.all_to_all(x * k, "x", 1, 0, tiled=True), x.sharding.mesh, P("x"),
        P(None, "x"),
    )  # fmt: skip
    by_axes = jit_shard_map(
        lambda z, k: lax.pmax(lax.psum(z * k, "b"), "a"), square, P("a", "b"), P()
    )
    wide = W.T[:8].reshape(2, 4, 4, 2).sum(2).max(0)
    for f, given, result in (
        (sd.jit(lambda x, k: (x * k).sum(0)), x, large.sum(0) * 2),
        (scattered, x, large[::2].sum(0) * 2),
        (turned, x, large * 2),
        (by_axes, z, wide * 2),
    ):
        for _ in range(2):
            np.testing.assert_allclose(gather_to_all(f(given, 2.0)), result, rtol=1e-5)
            found = first_line(lambda: f(given, 3.0 if is_last_process() else 2.0))  # noqa: B023
            assert "k of " in found or "args" in found
            assert "has other elements in process" in found
        k = sd.device_put(np.float32(2), NamedSharding(given.sharding.mesh, P()))
        np.testing.assert_allclose(gather_to_all(f(given, k)), result, rtol=1e-5)
        if sd.process_count() != 3:  # its devices are not blocks of the mesh
            assert count_messages(lambda: f(given, 2.0)) == count_messages(lambda: f(given, k))  # noqa: B023


@check
def replicated_shards_are_compared() -> None:
    one = np.full(3, own_index(), np.float32)
    everywhere = sharding()
    start = " has other elements in process 1 than in process 0 for the "
    end = (
        f", which {everywhere} replicates; pass the same in every process, or a sharding that "
        "gives each its own shard"
    )
    part = "shard [0:3] of an array of type f32[3]"
    for function_name, make in (
        ("make_array_from_process_local_data", lambda: from_process_local(one, everywhere)),
        ("make_array_from_callback", lambda: from_callback((3,), everywhere, lambda _: one)),
        (
            "make_array_from_single_device_arrays",
            lambda: sd.make_array_from_single_device_arrays(
                (3,), everywhere, [sd.device_put(one, d) for d in sd.local_devices()]
            ),
        ),
    ):
        assert first_line(make) == function_name + start + part + end
    number = f"element of an array of type f32[]{end}"
    assert first_line(lambda: from_process_local(one[0], everywhere)) == (
        f"make_array_from_process_local_data{start}{number}"
    )
    assert_gathered_equal(from_process_local(W, everywhere), W)
    # Along one axis: shards that several processes have, and shards of one process.
    some = sharding(None, "y")
    wrong = W.copy()
    wrong[0, 11] += own_index()
    text = first_line(lambda: from_callback((8, 12), some, lambda index: wrong[index]))
    assert text.startswith("make_array_from_callback has other elements in process 1 than in ")
    assert "for the shard [0:8, 6:12] of an array of type f32[8, 12]" in text
    assert_gathered_equal(from_callback((8, 12), some, lambda index: W[index]), W)
    assert_gathered_equal(from_callback((8, 12), sharding("x", "y"), lambda index: W[index]), W)
    text = first_line(lambda: sd.device_put_replicated(one, sd.devices()))
    assert text.startswith("process 1 places other elements than process 0 on devices of several")


@check
def a_setting_disables_the_comparison() -> None:
    x = put_on_mesh(W, "x")
    with sd.config(check_replicated_inputs=False):
        f = sd.jit(scale_by)
        assert first_line(lambda: f(x, float(own_index()))).startswith(
            "%k of scale_by (f32[]) is not placed"
        )
        assert_gathered_equal(f(x, 2.0), W * 2)
        made = f(x, float(own_index()))  # the runtime does not detect the differing shards
        for shard in made.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), W[shard.index] * own_index())
        from_process_local(np.full(3, own_index(), np.float32), sharding())
    assert first_line(lambda: sd.jit(scale_by)(x, float(own_index()))).startswith(
        "%k of scale_by (f32[]) is not"
    )


@check
def only_the_root_has_the_gathered_arrays() -> None:
    tree = {"x": put_on_mesh(W, "x"), "n": (3, np.arange(2))}
    for root in range(sd.process_count()):
        found = gather_to_root(tree, root)
        if own_index() == root:
            np.testing.assert_array_equal(found["x"], W)
            np.testing.assert_array_equal(found["n"][1], [0, 1])
        else:
            assert found is None
    np.testing.assert_array_equal(gather_to_all(tree)["x"], W)


def main() -> None:
    sd.distributed.initialize()
    for each in CHECKS:
        each()
    print("all", len(CHECKS))


if __name__ == "__main__":
    main()
