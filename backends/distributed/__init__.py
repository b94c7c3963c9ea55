"""Execution of one program on the devices of many processes.

Every process runs the same per-device program for its own devices, in lockstep with the others. A
collective has two levels: arrays of one process are combined in its memory, and each pair of
processes exchanges one message. The tag of a message is a hash of the program, the run and the
step, so that processes that diverged do not receive each other's data; they wait and report it.

A `Communicator` sends the messages: of MPI (`mpi_communicator.py`), or of sockets between
processes that a launcher without MPI started (`sockets/`). Input: a per-device program and the
shards of this process. Output: the shards of the results. Start with `job.py`.
"""
