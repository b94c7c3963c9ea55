"""The MPI engine: one program on the devices of many processes.

Every process runs the same per-device program for its own devices, in lock step with the others.
A collective has two levels: arrays of one process meet in its memory, and what processes have for
each other travels in one message a pair. All messages carry a tag made from the program, the run
and the step they belong to, so that processes that have gone different ways wait, and say so,
rather than take one another's numbers.

Imported when `shardir.distributed.initialize` finds MPI, since importing mpi4py starts it.
"""

from shardir.backends.mpi.world import World as World, connect as connect
