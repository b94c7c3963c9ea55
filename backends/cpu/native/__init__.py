"""The native CPU backend: programs as machine code, one native call a step."""
