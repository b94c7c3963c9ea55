"""Backend for the devices that JAX reaches: XLA compiles and runs the program of each device.

Input: a partitioned module. Output: a `DeviceExecutable`, whose replicas are the devices of the
mesh, and whose collectives are those of the module. Start with `backend.py`; `program_text.py`
writes the StableHLO text, and `runtime.py` contains everything that uses jax and jaxlib.
"""
