"""Communication report: every collective of a per-device program with its bytes and reason."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from shardir import ops
from shardir.cost.mesh_axes import name_axes
from shardir.cost.op_cost import mesh_axes_of, sent_by
from shardir.cost.trip_counts import Definitions, find_definitions, trip_count
from shardir.ir.module import Block, Loc, Module, Op
from shardir.ir.sharding import count_positions
from shardir.ops.communication.async_collectives import kind_of

REQUESTED = "the program requests it"
"""The reason of a collective that a pass did not create, such as a `psum` inside `shard_map`."""

PIPELINE_SEND = "send"
"""The kind of the messages between the stages of a pipeline, from each device to one other."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of a program.

    `axes` are the mesh axes it runs along (`data`, or `data:(1)2` for a sub-axis), `group_size` the
    number of devices in each group, `nbytes` the bytes of its results on one device, `sent` the
    bytes that a device sends per execution (with bandwidth-optimal algorithms), `executions` the
    number of executions per run (`None` inside a `while` whose trip count is unknown), `value` its
    result, `loc` the user's line and `why` the reason it exists, `REQUESTED` if no pass created it.
    `combined_locs` are the other lines of the arrays that XLA combined into one collective.
    """

    kind: str
    axes: tuple[str, ...]
    group_size: int
    nbytes: int
    sent: int
    executions: int | None
    value: str
    loc: Loc | None
    why: str
    combined_locs: tuple[Loc, ...] = ()

    @property
    def counted_executions(self) -> int:
        """The number of executions for sums: 1 if it is unknown."""
        return 1 if self.executions is None else self.executions


def name_counted_function(module: Module) -> str:
    """Return which function of a module with several ones the counts are those of, such as `@f, the
    first of 2 functions`, and an empty text for a module with one function."""
    count = len(module.functions)
    return f"@{module.main.name}, the first of {count} functions" if count > 1 else ""


def list_collectives(module: Module) -> list[Collective]:
    """Return every collective of the module's first function in program order, including loops.

    A program that has not been partitioned has none.
    """
    body = module.main.body
    return list(_collectives_of_block(module, body, 1, find_definitions(body)))


def _collectives_of_block(
    module: Module, block: Block, times: int | None, definitions: Definitions
) -> Iterator[Collective]:
    for op in block.ops:
        if op.spec.collective:
            yield _describe(module, op, times)
        if op.blocks:
            count = None if times is None else trip_count(op, definitions)
            for number, each in enumerate(op.blocks):
                # The condition of a loop runs once more than its body.
                extra = 1 if op.spec is ops.while_ and number == 0 else 0
                inner = None if times is None or count is None else times * (count + extra)
                yield from _collectives_of_block(module, each, inner, definitions)


def _describe(module: Module, op: Op, times: int | None) -> Collective:
    return Collective(
        kind_of(op),
        name_axes(module.meshes, mesh_axes_of(op)),
        count_positions(mesh_axes_of(op)),
        sum(result.type.nbytes for result in op.results),
        sent_by(op),
        times,
        op.results[0].name,
        op.loc,
        op.why or REQUESTED,
    )


@dataclass(frozen=True, slots=True)
class CommunicationTotal:
    """A sum over collectives: their number, their executions, and the result bytes and sent bytes
    per device over all executions.
    """

    count: int = 0
    executions: int = 0
    nbytes: int = 0
    sent: int = 0

    def __add__(self, other: "CommunicationTotal") -> "CommunicationTotal":
        return CommunicationTotal(
            self.count + other.count,
            self.executions + other.executions,
            self.nbytes + other.nbytes,
            self.sent + other.sent,
        )


def sum_collectives(some: Iterable[Collective]) -> CommunicationTotal:
    """Return the sum over collectives; those in a `while` count once."""
    return sum(
        (
            CommunicationTotal(
                1,
                c.counted_executions,
                c.counted_executions * c.nbytes,
                c.counted_executions * c.sent,
            )
            for c in some
        ),
        CommunicationTotal(),
    )


def sum_by(
    some: Iterable[Collective], key: Callable[[Collective], str]
) -> dict[str, CommunicationTotal]:
    """Return the totals grouped by a key of each collective, such as its kind, axes or line."""
    groups: dict[str, list[Collective]] = {}
    for each in some:
        groups.setdefault(key(each), []).append(each)
    return {word: sum_collectives(group) for word, group in groups.items()}


def format_axes(collective: Collective) -> str:
    """Return the axes of a collective as text: `data`, or `(data, model)`."""
    axes = collective.axes
    return axes[0] if len(axes) == 1 else f"({', '.join(axes)})"
