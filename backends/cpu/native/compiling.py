"""Compile a program over unsharded arrays to its schedule, with the rules of all operations.

This module is not imported for programs whose schedules are on disk.
"""

from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.rules import ORDERS, RULES
from shardir.backends.cpu.native.runtime.kernels import begin
from shardir.backends.cpu.native.runtime.workers import worker_count
from shardir.backends.cpu.native.schedule.building import Builder
from shardir.backends.cpu.native.schedule.lookups import with_lookups
from shardir.backends.cpu.native.schedule.lowering import lower
from shardir.backends.cpu.native.schedule.schedule import Schedule
from shardir.ir import Function


def schedule_of(function: Function) -> Schedule:
    """Return the schedule of a function for one device."""
    lowered = with_lookups(lower(function, ORDERS))
    return Builder(lowered, RULES, worker_count(), host(), begin).build()
