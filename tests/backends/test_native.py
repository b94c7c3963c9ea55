"""The C extension: flattening, call tables, launches, memory blocks, and classes of callables."""

import copy
import gc
import subprocess
import sys
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu.dispatch.memory_block import MemoryBlock
from shardir.backends.cpu.threads.memory_pool import MemoryPool
from shardir.backends.native import has_call_cache, native, vectorcall_class
from shardir.backends.storage import Storage
from shardir.frontend.pytree import tree
from tests.native_tier import needs_native

pytestmark = needs_native

ARRAYS = [snp.arange(2.0), snp.arange(2.0) + 1, snp.arange(3)]
trees = st.recursive(
    st.sampled_from([*ARRAYS, None]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("dcba"), inner, max_size=3),
    ),
    max_leaves=8,
)


def flat(*containers: Any) -> tuple[list[Any], tuple[Any, ...]]:
    found = native.flatten(*containers)
    assert found is not None
    return found


@given(trees, trees)
def test_flatten_follows_the_order_of_pytrees(one: Any, other: Any) -> None:
    found = [flat(one), flat(other)]
    for each, (leaves, _) in zip((one, other), found, strict=True):
        assert [*map(id, leaves)] == [*map(id, tree.leaves(each))]
    signatures = [[x.signature for x in leaves] for leaves, _ in found]
    is_same_call = tree.structure(one) == tree.structure(other) and signatures[0] == signatures[1]
    assert (found[0][1] == found[1][1]) == is_same_call
    assert [*map(id, flat(one, other)[0])] == [*map(id, [*found[0][0], *found[1][0]])]


def test_flatten_returns_none_for_other_contents() -> None:
    pair = namedtuple("pair", "a b")
    x = ARRAYS[0]
    others = [
        1, "text", [1], {"a": 1}, {1: x}, {"a": x, 2: x}, {("a",): x}, {1}, pair(x, x),
        OrderedDict(a=x), type("Mine", (dict,), {})(), object(), sd.Array, np.ones(2),
    ]  # fmt: skip
    for each in others:
        assert native.flatten(each) is None
        assert native.flatten((x, [each])) is None
    deep: Any = x
    for _ in range(native.MAX_CONTAINER_DEPTH - 1):
        deep = [deep]
    assert flat(deep)[0][0] is x
    assert native.flatten([deep]) is None
    endless: list[Any] = []
    endless.append(endless)
    assert native.flatten(endless) is None


def test_flatten_and_is_ready_keep_reference_counts() -> None:
    x = ARRAYS[0]
    inner = {"b": x, "a": (x, None, [])}
    both = [inner, {"b": x}]
    held = [x, x.signature, inner, both, ")", 1000]
    nothing = sys.getrefcount(None)
    before = [sys.getrefcount(each) for each in held]
    for _ in range(100):
        assert native.flatten(both) is not None
        assert native.flatten([both, 1000]) is None
        assert native.flatten([both, {"b": 1000}]) is None
        assert native.is_ready(both)
        assert not native.is_ready([both, 1000])
    assert [sys.getrefcount(each) for each in held] == before
    assert abs(sys.getrefcount(None) - nothing) < 100


def test_is_ready_needs_arrays_in_one_storage() -> None:
    x = ARRAYS[0]
    ready: list[Any] = [x, None, (), [], {}, {"a": x, 2: [x, (None, x)]}, [[x]]]
    assert all(map(native.is_ready, ready))
    deep: Any = x
    for _ in range(native.MAX_CONTAINER_DEPTH):
        deep = (deep,)
    deleted = snp.arange(2.0) + 5
    deleted.delete()
    for other in (deleted, 1, np.ones(2), OrderedDict(a=x), deep):
        for each in (other, [x, other], {"a": x, "b": (other,)}, (other, x)):
            assert not native.is_ready(each)


class Named:
    """Return how an object is called."""

    call_cache: Any

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.name, args, options


def test_a_vectorcall_class_behaves_as_the_class() -> None:
    kind = vectorcall_class(Named)
    made = kind("mine")
    assert made(1, a=2) == ("mine", (1,), {"a": 2})
    assert made(*range(20), **{"a": 2}) == ("mine", tuple(range(20)), {"a": 2})
    assert (kind.__name__, kind.__doc__, kind.__module__) == ("Named", Named.__doc__, __name__)
    assert made.__dict__ == {"name": "mine"}
    assert has_call_cache(made)
    assert not has_call_cache(Named("other"))
    assert made.call_cache is None
    with pytest.raises(TypeError, match="expected a CallCache, not int"):
        made.call_cache = 1
    body: Any = type("Body", (), {"method": made})
    instance = body()
    assert instance.method(3) == ("mine", (instance, 3), {})
    assert body.method is made
    made.self = made
    gone: list[int] = []
    weakref.finalize(made, gone.append, 1)
    del made, body, instance
    gc.collect()
    assert gone == [1]


def test_an_error_of_the_slow_path_is_raised() -> None:
    @vectorcall_class
    class Failing:
        def __call__(self, number: int) -> float:
            return 1 / number

    with pytest.raises(ZeroDivisionError):
        Failing()(0)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'number'"):
        Failing()()  # type: ignore[call-arg]


def cached_function() -> Any:
    """Return a compiled function whose call table holds a call of one array."""
    function: Any = sd.jit(lambda x, n: x + n, static_argnums=1)
    function(ARRAYS[0], 0)
    return function


def insert_number(function: Any, number: int, keep: object = None) -> None:
    """Insert the call of a number that no launch supports."""
    key = function.call_cache.key((ARRAYS[0], number), {})
    launch = native.Launch(0, 0, (), (), (), (), (), ((), ()), keep)
    function.call_cache.insert(key[0], launch, (), list, keep)


def test_a_full_call_table_is_cleared() -> None:
    function = cached_function()
    table = function.call_cache.table
    assert len(table) == 1
    for number in range(1, native.MAX_CACHED_CALLS):
        insert_number(function, number)
    assert len(table) == native.MAX_CACHED_CALLS
    insert_number(function, 1)
    assert len(table) <= native.MAX_CACHED_CALLS
    insert_number(function, native.MAX_CACHED_CALLS)
    assert len(table) <= 2
    table.clear()
    assert len(table) == 0
    np.testing.assert_array_equal(function(ARRAYS[0], 5), np.arange(2.0) + 5)


def test_an_entry_lives_until_it_is_replaced_or_removed() -> None:
    function = cached_function()
    first, second = Named("first"), Named("second")
    seen = [weakref.ref(first), weakref.ref(second)]
    insert_number(function, 1, first)
    del first
    gc.collect()
    assert seen[0]() is not None
    insert_number(function, 1, second)
    del second
    gc.collect()
    assert seen[0]() is None
    assert seen[1]() is not None
    function.clear_cache()
    assert seen[1]() is None


def test_a_cycle_through_a_call_table_is_collected() -> None:
    function = cached_function()
    insert_number(function, 1, function)
    seen = weakref.ref(function)
    del function
    gc.collect()
    assert seen() is None


def test_an_entry_that_is_removed_while_it_runs_stays_alive() -> None:
    function = cached_function()
    table = function.call_cache.table

    def build(results: list[Any]) -> str:
        table.clear()
        gc.collect()
        return "built"

    key = function.call_cache.key((ARRAYS[0], 1), {})
    launch = native.Launch(0, 0, (), (), (), (), (), ((), ()), None)
    function.call_cache.insert(key[0], launch, (), build, None)
    assert function(ARRAYS[0], 1) == "built"
    assert len(table) == 0


def test_failed_inserts_make_further_ones_rare() -> None:
    table = native.CallTable()
    assert all(table.should_insert() for _ in range(100))
    table.failed_inserts = native.INSERT_INTERVAL_CALLS + 1
    tried = [table.should_insert() for _ in range(10 * native.INSERT_INTERVAL_CALLS)]
    assert sum(tried) == 10


def test_insert_rejects_arguments_of_another_program() -> None:
    function = cached_function()
    key, leaves = function.call_cache.key((ARRAYS[0], 1), {})
    assert leaves == [ARRAYS[0]] or leaves[0] is ARRAYS[0]
    launch = native.Launch(0, 0, (), ((-1, "array", 0, 0, None, None),), (), (), (), ((), ()), None)
    with pytest.raises(ValueError, match="the arguments or results do not match the launch"):
        function.call_cache.insert(key, launch, (), None, None)
    with pytest.raises(ValueError, match="no kind of argument is named 'tensor'"):
        native.Launch(0, 0, (), ((-1, "tensor", 0, 0, None, None),), (), (), (), ((), ()), None)
    row = (-1, "import", 0, 0, None, ((0, 4, int), (), None, "halve", 0))
    with pytest.raises(ValueError, match="no conversion is named halve"):
        native.Launch(0, 0, (), (row,), (), (), (), ((), ()), None)


def test_a_launch_checks_its_arguments() -> None:
    x = ARRAYS[0]
    result = (-1, 4, (1,), x.buffers.dtype, x.signature, x.sharding, True)
    argument = (-1, "array", 0, 0, (2,), None)
    launch = native.Launch(0, 0, (), (argument,), (), (), (result,), ((), ()), None)
    made = launch([x])
    assert made is not None
    np.testing.assert_array_equal(np.asarray(made[0].buffers.array), [1.0])
    assert made[0].buffers.owner is x.buffers
    for other in ([], [x, x], [1], [np.ones(2)], [ARRAYS[2]]):
        assert launch(other) is None
    text = "a launch takes a list of arguments, and all of its blocks or none"
    wrong: list[Callable[[], Any]] = [
        lambda: launch(),  # type: ignore[call-arg]
        lambda: launch((x,)),  # type: ignore[arg-type]
        lambda: launch([x], x),
        lambda: launch([x], block=1),  # type: ignore[call-arg]
    ]
    for call in wrong:
        with pytest.raises(TypeError, match=text):
            call()


def test_a_launch_takes_memory_blocks_alone() -> None:
    x = ARRAYS[0]
    result = (0, 0, (2,), x.buffers.dtype, x.signature, x.sharding, False)
    block = (0, 8, lambda size: object())
    launch = native.Launch(0, 0, (), (), (), (block,), (result,), ((), ()), None)
    calls: list[Callable[[], Any]] = [lambda: launch([]), lambda: launch([], object())]
    for call in calls:
        with pytest.raises(TypeError, match="expected a memory block, not object"):
            call()
    made = launch([], MemoryPool(1 << 30).allocate(8))
    assert made is not None
    assert type(made[0].buffers) is Storage


def test_small_blocks_return_to_their_free_list() -> None:
    pool = MemoryPool(1 << 30, uses_native_blocks=True)
    block: Any = pool.allocate(1000)
    assert type(block) is native.SmallBlock
    assert pool.may_be_written(block)
    assert (block.nbytes, block.address % 64) == (1000, 0)
    address, used = block.address, pool.statistics().in_use
    view = np.asarray(block)
    view[:] = 3
    with pytest.raises(TypeError, match="a memory block cannot be copied"):
        copy.copy(block)
    del block
    assert pool.statistics().in_use == used
    del view
    gc.collect()
    found = pool.statistics()
    assert (found.in_use, found.idle) == (0, used)
    other = pool.allocate(990)
    assert (other.address, other.nbytes) == (address, 990)
    large = pool.allocate(5 << 20)
    assert type(large) is MemoryBlock
    assert large.address != address
    with pytest.raises(TypeError, match="cannot create"):
        native.SmallBlock()


def test_the_classes_are_checked() -> None:
    with pytest.raises(TypeError, match=r"expected a subclass of .*ArrayFields"):
        native.set_array_class(Named)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected a subclass of .*StorageFields"):
        native.set_storage_class(1)  # type: ignore[arg-type]


def test_python_code_computes_the_same_without_the_extension() -> None:
    program = (
        "import numpy as np, shardir as sd, shardir.numpy as snp\n"
        "from shardir.backends.native import native\n"
        "assert native is None\n"
        "x = snp.arange(6.0).reshape(2, 3)\n"
        "f = sd.jit(lambda x, n: {'a': x * n, 'b': [x.T, snp.sum(x)]}, static_argnums=1)\n"
        "for _ in range(3):\n"
        "    print(f(x, 2)['a'].tolist(), (x + x)[1].tolist(), snp.zeros(2).tolist())\n"
        "sd.block_until_ready(f(x, 3))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"SHARDIR_NATIVE_DISPATCH": "0", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    line = "[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]] [6.0, 8.0, 10.0] [0.0, 0.0]\n"
    assert (done.returncode, done.stdout) == (0, 3 * line), done.stderr
