"""Messages through MPI. Importing this module initializes MPI."""

import os
import time
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from mpi4py import MPI

from shardir.backends.base import Array
from shardir.backends.distributed.communicator import Communicator, Request

DEFAULT_MAX_TAG = 32767
"""The smallest upper bound of tags that the MPI standard allows."""


class MpiRequest(Request):
    """A message in flight; MPI keeps its buffers alive."""

    def __init__(self, request: MPI.Request) -> None:
        self.request = request

    def has_completed(self) -> bool:
        return self.request.Get_status()


class MpiCommunicator(Communicator):
    """A communicator of MPI."""

    heartbeat_seconds = 10.0

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        limit = comm.Get_attr(MPI.TAG_UB)
        self.max_tag = limit if isinstance(limit, int) else DEFAULT_MAX_TAG
        # Several threads may send at the same time only with MPI_THREAD_MULTIPLE.
        self.is_thread_safe = MPI.Query_thread() == MPI.THREAD_MULTIPLE

    def duplicate(self) -> "MpiCommunicator":
        return MpiCommunicator(self.comm.Dup())

    def send(self, buffers: Sequence[Array], target: int, tag: int) -> MpiRequest:
        if len(buffers) == 1:
            return MpiRequest(self.comm.Isend([_as_bytes(buffers[0]), MPI.BYTE], target, tag))
        kind = _join_buffers(buffers)
        request = self.comm.Isend([MPI.BOTTOM, 1, kind], target, tag)
        kind.Free()  # MPI keeps the datatype until the message has been sent.
        return MpiRequest(request)

    def receive(self, buffers: Sequence[Array], source: int, tag: int) -> MpiRequest:
        if len(buffers) == 1:
            return MpiRequest(self.comm.Irecv([_as_bytes(buffers[0]), MPI.BYTE], source, tag))
        kind = _join_buffers(buffers)
        request = self.comm.Irecv([MPI.BOTTOM, 1, kind], source, tag)
        kind.Free()
        return MpiRequest(request)

    def have_completed(self, requests: Sequence[Request]) -> bool:
        return MPI.Request.Testall(
            [each.request for each in requests if isinstance(each, MpiRequest)]
        )

    def send_object(self, value: object, target: int, tag: int) -> MpiRequest:
        return MpiRequest(self.comm.isend(value, target, tag))

    def receive_object(self, tag: int) -> object | None:
        if not self.comm.Iprobe(MPI.ANY_SOURCE, tag):
            return None
        value: object = self.comm.recv(source=MPI.ANY_SOURCE, tag=tag)
        return value

    def allgather(self, value: object) -> list[object]:
        values: list[object] = self.comm.allgather(value)
        return values

    def lost_processes(self) -> frozenset[int]:
        return frozenset()  # The launcher ends the job.

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def leave_job(self) -> None:
        pass  # The launcher ends every process that has not called MPI_Finalize.

    def has_been_aborted(self) -> bool:
        return False

    def abort(self, code: int) -> NoReturn:
        self.comm.Abort(code)
        os._exit(code)


def world_communicator() -> MpiCommunicator:
    """Return a communicator of all processes that the launcher of MPI started."""
    return MpiCommunicator(MPI.COMM_WORLD.Dup())


def _as_bytes(array: Array) -> Array:
    """View a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)


def _join_buffers(buffers: Sequence[Array]) -> MPI.Datatype:
    """Return a datatype of several arrays that form one message, without copying them."""
    addresses = [MPI.Get_address(_as_bytes(each)) for each in buffers]
    return MPI.BYTE.Create_hindexed([each.nbytes for each in buffers], addresses).Commit()
