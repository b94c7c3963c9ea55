"""The types of the C extension `_native.c`, which states what its functions do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

MAX_CACHED_CALLS: int
INSERT_INTERVAL_CALLS: int
MAX_CONTAINER_DEPTH: int

class ArrayFields:
    signature: Any
    sharding: Any
    buffers: Any
    _parts: Any
    _whole: Any
    _gone: Any

class StorageFields:
    address: int
    owner: Any
    shape: Any
    dtype: Any
    _array: Any

class BlockFields:
    address: int
    nbytes: int

@final
class SmallBlock:
    address: int
    @property
    def nbytes(self) -> int: ...
    free_list: int

@final
class Launch:
    def __init__(
        self,
        run: int,
        program: int,
        template: tuple[int, ...],
        arguments: tuple[tuple[Any, ...], ...],
        placements: tuple[tuple[int, int, int], ...],
        blocks: tuple[tuple[Any, ...], ...],
        results: tuple[tuple[Any, ...], ...],
        described: tuple[object, object],
        keep: object,
        /,
    ) -> None: ...
    def __call__(self, leaves: list[Any], /, *blocks: Any) -> list[Any] | None: ...
    @property
    def arguments(self) -> Any: ...
    @property
    def results(self) -> Any: ...

@final
class CallTable:
    failed_inserts: int
    def should_insert(self) -> bool: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...

@final
class CallCache:
    def __init__(
        self,
        table: CallTable,
        context: tuple[tuple[Any, ...], tuple[Any, ...], list[Any], Mapping[Any, Any]],
        positions: Sequence[int] | None,
        names: Sequence[str] | None,
        is_swapped: bool,
        /,
    ) -> None: ...
    @property
    def table(self) -> CallTable: ...
    def key(
        self, args: tuple[Any, ...], options: dict[str, Any], /
    ) -> tuple[bytes, list[Any]] | None: ...
    def insert(
        self,
        key: bytes,
        launch: Launch,
        arguments: tuple[tuple[Any, ...], ...],
        build: Callable[[list[Any]], Any] | None,
        keep: object,
        /,
    ) -> None: ...

def make_block(free_list: int, nbytes: int, address: int, /) -> SmallBlock: ...
def pop_block(free_list: int, nbytes: int, /) -> SmallBlock | None: ...
def set_array_class(type: type[ArrayFields], /) -> None: ...
def set_storage_class(type: type[StorageFields], /) -> None: ...
def make_callable_type(name: str, /) -> Any: ...
def flatten(*containers: Any) -> tuple[list[Any], tuple[Any, ...]] | None: ...
def is_ready(x: Any, /) -> bool: ...
