"""The frontend: devices, arrays and the tracing that turns Python functions into modules."""
