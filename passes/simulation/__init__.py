"""Simulation: the time and memory that one step of a program takes on a described machine.

Input: the program of each device (after `partition`, and after fusion as the target performs it)
and a machine. Output: a `Simulation`. Start with `simulate`. `work` has the time of one operation,
`kernel_counts` what a kernel of measured operations does, `list_scheduler` the order of events,
`breakdown` the parts of the time, `memory_use` and `utilization` memory and flops, `table` the
text.
"""

from shardir.passes.simulation import table as table
from shardir.passes.simulation.machine_model import MachineModel as MachineModel
from shardir.passes.simulation.simulate import simulate as simulate
from shardir.passes.simulation.simulation import Simulation as Simulation
