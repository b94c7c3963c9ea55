"""Traces of the operations of all programs, with annotations of the user."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.profiling.trace": (
        "StepTraceAnnotation",
        "TraceAnnotation",
        "annotate_function",
        "start_trace",
        "stop_trace",
        "trace",
    ),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.profiling.trace import (
        StepTraceAnnotation as StepTraceAnnotation,
        TraceAnnotation as TraceAnnotation,
        annotate_function as annotate_function,
        start_trace as start_trace,
        stop_trace as stop_trace,
        trace as trace,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
