"""The frontend: devices, arrays, and the tracing of Python functions to modules."""
