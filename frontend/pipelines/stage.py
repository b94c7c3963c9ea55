"""`stage`: marks of the stages of a pipeline."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import final

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.trace import Trace, current_trace, emit
from shardir.frontend.wrappers import wraps
from shardir.ir.builder import substitute
from shardir.ir.module import Block, Op, Value
from shardir.ops.control_flow.pipelines import pipeline_stage


@final
class Stage(AbstractContextManager["Stage"]):
    """The mark of one stage, for a function or for the statements of a `with` block."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._open: list[AbstractContextManager[None]] = []

    def __call__(self, fun: UserFunction) -> UserFunction:
        """Return `fun`, computed in this stage: what it computes from its arguments belongs to the
        stage.
        """
        check_function("stage", fun)

        @wraps(fun)
        def wrapper(*args: PyTree, **options: PyTree) -> PyTree:
            if current_trace() is None:
                return fun(*args, **options)
            with self:
                return self._mark(fun(*args, **options))

        return wrapper

    def _mark(self, values: PyTree) -> PyTree:
        def each(leaf: object) -> PyTree:
            if not is_array_like(leaf):
                return leaf
            tracer = as_tracer(leaf)
            return emit(pipeline_stage, tracer, weak=tracer.weak_type, stage=self.number)

        return tree.map(each, values)

    def __enter__(self) -> "Stage":
        trace = current_trace()
        self._open.append(_mark_block(trace, self.number) if trace else _no_marks())
        self._open[-1].__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.pop().__exit__(kind, error, traceback)

    def __repr__(self) -> str:
        return f"stage({self.number})"


@with_argument_errors
def stage(number: int) -> Stage:
    """Return the mark of stage `number` of a pipeline, counted from 0.

    `stage(1)(f)(x)` computes `f(x)` in stage 1; `with stage(1):` marks the statements of a block.
    Operations that no mark names are computed where that sends least. Outside of `pipeline`, marks
    have no effect.
    """
    return Stage(check_integer("the number of a stage", number, least=0))


@contextmanager
def _no_marks() -> Iterator[None]:
    yield


@contextmanager
def _mark_block(trace: Trace, number: int) -> Iterator[None]:
    """Mark the operations that are traced inside: their inputs, and results nothing inside uses."""
    start = len(trace.ops)
    yield
    if current_trace() is not trace:
        return
    # A transformation inside of the block refers to values by their final names, which are other
    # values than those that the operations of the block define.
    block = Block((), tuple(trace.ops[start:]), ())
    marked = mark_operations(list(substitute(block, trace.program.unnamed_values).ops), number)
    trace.ops[start:] = marked


def mark_operations(ops: list[Op], number: int) -> list[Op]:
    """Return operations with marks of a stage at the values that enter them and leave them.

    Values that leave keep their identity, because the operations that follow refer to them.
    """
    maker = {value: op for op in ops for value in op.results}
    first_use = {value: op for op in reversed(ops) for value in op.uses()}
    entering = {value: op.loc for value, op in first_use.items() if value not in maker}
    leaving = {value: op.loc for value, op in maker.items() if value not in first_use}
    new = {value: Value(value.type, "", value.sharding) for value in (*entering, *leaving)}
    attrs = {"stage": number}
    before = [Op(pipeline_stage, (x,), (new[x],), attrs, (), loc) for x, loc in entering.items()]
    after = [Op(pipeline_stage, (new[x],), (x,), attrs, (), loc) for x, loc in leaving.items()]
    return [*before, *substitute(Block((), tuple(ops), ()), new).ops, *after]
