"""`start_trace`, `stop_trace` and annotations: the activities of all programs during a time.

A trace is a file in Chrome's trace format: the tracks are the user's annotations, the operations,
and the tasks of each worker. It has the place and the name that TensorBoard expects.
"""

import gzip
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from threading import get_ident
from typing import Any, final

from shardir.backends.numpy.profiling import ActivityRecorder, record_activities
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.call_signatures import with_constructor_errors, with_method_errors
from shardir.frontend.errors import ArgumentError
from shardir.frontend.profiling.profile_data import NamedSpan, ProfiledRun, run_events
from shardir.frontend.profiling.trace_file import ProfilerError, write_trace
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location


@final
class _Trace:
    """A running trace: its folder, the recorder, and the annotations that have ended, by thread."""

    def __init__(self, folder: Path, makes_perfetto_trace: bool) -> None:
        self.folder, self.makes_perfetto_trace = folder, makes_perfetto_trace
        self._stack = ExitStack()
        self._recorder: ActivityRecorder = self._stack.enter_context(record_activities())
        self._begin = time.monotonic_ns()
        self.annotations: dict[int, list[NamedSpan]] = {}

    def stop(self) -> Path:
        """End the recording, write the files, and return the path of the trace."""
        end = time.monotonic_ns()
        spans = tuple(self._recorder.take())
        self._stack.close()
        run = ProfiledRun(self._begin, end, spans, self._recorder.dropped_tasks)
        tracks = {
            "annotations" + (f" of thread {number}" if number else ""): spans
            for number, spans in enumerate(self.annotations.values())
        }
        text = json.dumps({"traceEvents": run_events("trace", run, tracks)})
        moment = time.strftime("%Y_%m_%d_%H_%M_%S")
        folder = self.folder / "plugins" / "profile" / moment
        names = [f"{socket.gethostname()}.trace.json.gz"]
        if self.makes_perfetto_trace:
            names.append("perfetto_trace.json.gz")
        for name in names:
            write_trace(folder / name, gzip.compress(text.encode()), makes_folder=True)
        return folder / names[0]


_running: list[_Trace] = []
"""The running trace, if there is one."""


@with_argument_errors
def start_trace(
    log_dir: os.PathLike[str] | str, create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False, profiler_options: None = None,
) -> None:  # fmt: skip
    """Record the operations of all programs and the annotations, until `stop_trace`.

    `stop_trace` writes `log_dir/plugins/profile/TIME/HOST.trace.json.gz`, which Perfetto
    (ui.perfetto.dev), chrome://tracing and TensorBoard show; with `create_perfetto_trace` it also
    writes `perfetto_trace.json.gz` beside it. Raises `ProfilerError` if a trace is running, and
    `ArgumentError` for `create_perfetto_link`, which needs a server, and for `profiler_options`,
    which are options of XLA.
    """
    if _running:
        raise ProfilerError(
            with_location(
                f"start_trace is called while a trace into {_running[0].folder} is running; "
                "call stop_trace first"
            )
        )
    if create_perfetto_link:
        raise ArgumentError(
            with_location(
                "start_trace does not serve files to Perfetto; pass create_perfetto_trace=True, "
                "and open perfetto_trace.json.gz at ui.perfetto.dev"
            )
        )
    if profiler_options is not None:
        raise ArgumentError(
            with_location("start_trace has no profiler_options: they are options of XLA's profiler")
        )
    _running.append(_Trace(Path(log_dir), create_perfetto_trace))


@with_argument_errors
def stop_trace() -> None:
    """End the trace that `start_trace` began, and write its files; see there.

    Raises `ProfilerError` if no trace is running, or if the files cannot be written.
    """
    if not _running:
        raise ProfilerError(
            with_location("stop_trace is called while no trace is running; call start_trace first")
        )
    _running.pop().stop()


@with_argument_errors
@contextmanager
def trace(
    log_dir: os.PathLike[str] | str, create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False, profiler_options: None = None,
) -> Iterator[None]:  # fmt: skip
    """Return a context manager that records a trace; see `start_trace`."""
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


@with_constructor_errors
@with_method_errors
class TraceAnnotation(ContextDecorator):
    """A context manager that shows its block in traces under `name`, with the facts `kwargs`.

    It has no effect while no trace is running.
    """

    def __init__(self, name: str, **kwargs: object) -> None:
        self._name, self._facts = str(name), kwargs
        self._begins: list[int] = []

    def __enter__(self) -> None:
        """Begin the annotation."""
        self._begins.append(time.monotonic_ns())

    def __exit__(self, *raised: object) -> None:
        """End the annotation."""
        begin = self._begins.pop()
        for each in _running:
            span = NamedSpan(self._name, begin, time.monotonic_ns(), self._facts)
            each.annotations.setdefault(get_ident(), []).append(span)

    @classmethod
    def is_enabled(cls) -> bool:
        """Return whether a trace is running."""
        return bool(_running)


class StepTraceAnnotation(TraceAnnotation):
    """A `TraceAnnotation` of a step of a training loop; `step_num` is its number."""


@with_argument_errors
def annotate_function(
    func: Callable[..., object], name: str | None = None, **decorator_kwargs: Any
) -> Callable[..., PyTree]:
    """Return `func` with a `TraceAnnotation` around each call, by default under its own name."""
    check_function("annotate_function", func)
    shown = str(name or getattr(func, "__qualname__", type(func).__name__))

    @wraps(func)
    def call_annotated(*args: object, **options: object) -> object:
        with TraceAnnotation(shown, **decorator_kwargs):
            return func(*args, **options)

    return call_annotated
