"""The leak checker: a traced value that is still referenced when its trace has ended is an error.

Without it, such a value raises an error when an operation uses it, which may be much later.
"""

import gc
from typing import Protocol

from shardir.frontend.errors import LeakedTracerError
from shardir.frontend.source_locations import underline, with_location
from shardir.frontend.tracing.tracer import ProgramScope, Tracer, TraceScope


class KeptByProgram(ProgramScope, Protocol):
    """The attributes of a `TracedProgram` that refer to tracers, and to frames with tracers."""

    internal_tracers: list[Tracer]

    def forget_frames(self) -> None: ...


class EndedTrace(TraceScope, Protocol):
    """The attribute of a `Trace` with its program."""

    @property
    def program(self) -> KeptByProgram: ...


def check_leaks(trace: EndedTrace) -> None:
    """Raise `LeakedTracerError` if a tracer of `trace`, which has ended, is still referenced.

    The caller itself must not refer to one.
    """
    trace.program.forget_frames()  # Frames refer to the values of their variables.
    gc.collect()
    kept = {id(tracer) for tracer in trace.program.internal_tracers}
    for each in gc.get_objects():
        if type(each) is Tracer and each.belongs_to(trace) and id(each) not in kept:
            raise LeakedTracerError(_describe_leak(trace, each))


def _describe_leak(trace: TraceScope, tracer: Tracer) -> str:
    message = with_location(
        f"Leaked trace: {trace.what} has ended, and a traced {tracer.value.type} that belongs to "
        "it is still referenced; return it from there instead of keeping it in a variable, list "
        "or attribute"
    )
    if tracer.site is not None:
        place = underline(tracer.site.loc, tracer.site.width)
        message += f"\nit was created here:\n{place}"
    return message
