"""Compile a program over unsharded arrays to its schedule, with the rules of all operations.

This module is not imported for programs whose schedules are on disk.
"""

from shardir.backends.cpu.codegen.kernel_table import start_compiling
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.rules import LAYOUT_RULES, RULES
from shardir.backends.cpu.schedule.build import ScheduleBuilder
from shardir.backends.cpu.schedule.function_lowering import lower_function
from shardir.backends.cpu.schedule.gather_fusion import fuse_gathers
from shardir.backends.cpu.schedule.schedule import Schedule
from shardir.backends.cpu.threads.workers import worker_count
from shardir.ir.module import Function


def compile_schedule(function: Function) -> Schedule:
    """Return the schedule of a function for one device."""
    lowered = fuse_gathers(lower_function(function, LAYOUT_RULES))
    return ScheduleBuilder(lowered, RULES, worker_count(), host_machine(), start_compiling).build()
