"""Messages through sockets, for processes that a launcher without MPI started.

Each pair of processes has one connection: a Unix socket on one host, TCP between hosts. Input: the
address at which process 0 listens, or a key-value store. Output: a `SocketCommunicator`. Start with
`rendezvous.py`, then `socket_communicator.py`.
"""
