"""Tracers: the values that a function computes with while it is traced.

A tracer has a shape and an element type and represents a value of the program under construction.
An operation that needs concrete elements raises an error that shows the user's line and names an
alternative.
"""

from collections.abc import Iterator, Sequence
from operator import index
from typing import Any, NoReturn, Protocol, final

import numpy as np
import numpy.typing as npt

from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.operators import Operators
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.errors import (
    LeakedTracerError,
    TracedArrayError,
    TracedBoolError,
    TracedIntegerError,
    TracedShardingError,
    TracedTruthError,
    TracedValueError,
)
from shardir.frontend.source_locations import CallSite, underline, with_location
from shardir.frontend.tracing.promotion import DType, user_dtype
from shardir.ir.module import Value
from shardir.ir.types import NumpyArray


class TypesOfValues(Protocol):
    """The shardings in the types of values (`traced_program.ProgramTypes`)."""

    def abstract(self, value: Value, weak: bool) -> AbstractValue: ...


class ProgramScope(Protocol):
    """The attributes of a `TracedProgram` that a tracer reads."""

    @property
    def sharding_types(self) -> TypesOfValues | None: ...


class TraceScope(Protocol):
    """The attributes of a `Trace` that determine where a tracer may be used."""

    what: str
    has_ended: bool
    has_captures: bool

    @property
    def parent(self) -> "TraceScope | None": ...

    @property
    def program(self) -> ProgramScope: ...

    def find_elements(self, value: Value) -> NumpyArray | None: ...

    def find_shards(self, value: Value) -> Sequence[tuple[str, NumpyArray]]: ...

    def is_differentiated(self, value: Value) -> bool: ...


@final
class Tracer(Operators):
    """A value of the program under construction. Only `emit` and `Trace.add_parameter` make
    tracers.

    `value` is the value in the IR. `weak_type` states whether the value is computed from Python
    numbers alone.
    """

    __slots__ = ("_site", "_trace", "value", "weak_type")

    def __init__(self, trace: TraceScope, value: Value, weak: bool, site: CallSite | None) -> None:
        self._trace, self.value, self.weak_type, self._site = trace, value, weak, site

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.type.shape

    @property
    def dtype(self) -> DType:
        return user_dtype(self.value.type.dtype)

    @property
    def aval(self) -> ShapeDtypeStruct:
        """The abstract value: shape, element type, weakness."""
        return ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak_type)

    @property
    def abstract(self) -> AbstractValue:
        types = self._trace.program.sharding_types
        if types is not None:
            return types.abstract(self.value, self.weak_type)
        return AbstractValue(self.value.type, self.weak_type)

    def alias(self) -> "Tracer":
        """Return another tracer of the same value."""
        return Tracer(self._trace, self.value, self.weak_type, self._site)

    @property
    def site(self) -> CallSite | None:
        """The call that made the value, where known."""
        return self._site

    def belongs_to(self, trace: TraceScope) -> bool:
        """Return whether the value was made in `trace` itself."""
        return self._trace is trace

    def check(self, trace: TraceScope | None) -> None:
        """Raise `LeakedTracerError` unless the tracer belongs to `trace` or to a trace that
        encloses it, which `trace` records.
        """
        around = trace
        while around is not None:
            if around is self._trace:
                return
            around.has_captures = True
            around = around.parent
        ended = "has ended" if self._trace.has_ended else "does not enclose this line"
        message = with_location(
            f"a traced {self.value.type} was used outside of the trace it belongs to: "
            f"{self._trace.what} {ended}; return it from there instead of keeping it in a "
            "variable, list or attribute"
        )
        if self._site is not None:
            message += f"\nit was created here:\n{underline(self._site.loc, self._site.width)}"
        raise LeakedTracerError(message)

    def _refuse(
        self, attribute: str, way_out: str, kind: type[TracedValueError] = TracedValueError
    ) -> NoReturn:
        if self._trace.has_ended:
            self.check(None)
        text = f"a traced {self.value.type} has no {attribute} while {self._trace.what} is traced"
        raise kind(with_location(f"{text}; {way_out}"))

    def find_elements(self) -> NumpyArray | None:
        """Return the elements as a NumPy array, or `None` while they are not known.

        They are known outside of `jit`, in a function that is differentiated there, and in a
        `shard_map` for a value that all devices share.
        """
        return self._trace.find_elements(self.value)

    def _require_elements(
        self, attribute: str, way_out: str, kind: type[TracedValueError] = TracedValueError
    ) -> NumpyArray:
        """Return the elements of a value without a derivative; others are refused."""
        elements = self.find_elements()
        if elements is None:
            self._refuse(attribute, way_out, kind)
        if self._trace.is_differentiated(self.value):
            self._refuse(
                attribute,
                "it would lose its derivative; keep computing with arrays, or apply "
                "lax.stop_gradient first",
                kind,
            )
        return elements

    def __bool__(self) -> bool:
        if self.size == 1 and (elements := self.find_elements()) is not None:
            return bool(elements.item())
        if self.size != 1:
            self._refuse(
                "single truth value",
                "reduce it with .all() or .any(), and choose with snp.where or lax.cond",
                TracedBoolError,
            )
        self._refuse(
            "truth value",
            "choose elementwise with snp.where, between computations with lax.cond, loop with "
            "lax.while_loop, or make the argument it comes from static (static_argnums)",
            TracedTruthError,
        )

    def _require_number(self, kind: str) -> complex:
        way_out = (
            "keep computing with arrays (.astype changes the element type), or make the argument "
            "it comes from static (static_argnums)"
        )
        if self.size != 1:
            self._refuse(f"{kind} value", way_out)
        number: complex = self._require_elements(f"{kind} value", way_out).item()
        return number

    def __int__(self) -> int:
        # As in JAX, an integer needs no derivative, because it is constant nearly everywhere.
        if self.size == 1 and (elements := self.find_elements()) is not None:
            return int(elements.item())
        return int(self._require_number("int").real)

    def __float__(self) -> float:
        return float(self._require_number("float"))  # type: ignore[arg-type]

    def __complex__(self) -> complex:
        return complex(self._require_number("complex"))

    def __index__(self) -> int:
        if self.dtype.kind in "biu" and self.shape == ():
            elements = self.find_elements()
            if elements is not None:
                return index(elements.item())
        self._refuse(
            "int value",
            "index arrays with it directly, loop with lax.fori_loop, slice with "
            "lax.dynamic_slice, or make the argument it comes from static (static_argnums): "
            "shapes and Python's range need concrete integers",
            TracedIntegerError,
        )

    def item(self, *position: int) -> Any:
        way_out = "return it from the traced function and call .item() there"
        return self._require_elements("item", way_out).item(*position)

    def __bytes__(self) -> bytes:
        self._refuse("bytes", "return it from the traced function and call bytes() there")

    def tobytes(self, order: str = "C") -> Any:
        self._refuse("bytes", "return it from the traced function and call .tobytes() there")

    def tolist(self) -> Any:
        way_out = "return it from the traced function and convert it there"
        return self._require_elements("list of numbers", way_out).tolist()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Any:
        way_out = (
            "use the function of the same name in shardir.numpy instead of NumPy's, or convert "
            "the result outside of the traced function"
        )
        elements = self._require_elements("NumPy array", way_out, TracedArrayError)
        return np.array(elements, None if dtype is None else np.dtype(dtype), copy=copy)

    def __len__(self) -> int:
        if not self.shape:
            raise TracedValueError(with_location("a traced array of rank 0 has no len()"))
        return self.shape[0]

    def __iter__(self) -> "Iterator[Tracer]":
        if not self.shape:
            raise TracedValueError(
                with_location("a traced array of rank 0 cannot be iterated over")
            )
        return iter([self[i] for i in range(self.shape[0])])

    @property
    def sharding(self) -> Any:
        self._refuse(
            "sharding",
            "it is decided when the program is compiled; look at the result's .sharding, or "
            "request one with lax.with_sharding_constraint",
            TracedShardingError,
        )

    def block_until_ready(self) -> "Tracer":
        return self

    def __copy__(self) -> "Tracer":
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> "Tracer":
        return self

    def __format__(self, spec: str) -> str:
        if spec:
            self._refuse("text", "return it from the traced function and print it there")
        return str(self)

    def __str__(self) -> str:
        """Return the elements on each device in a `shard_map` outside of `jit`, or the type."""
        shards = self._trace.find_shards(self.value)
        return "\n".join(f"{name}:\n{each}\n" for name, each in shards) or repr(self)

    def __repr__(self) -> str:
        weak = ", weak" if self.weak_type else ""
        return f"Tracer({self.value.type}{weak})"
