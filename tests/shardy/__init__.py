"""Agreement with the real Shardy, which jaxlib's wheel carries."""
