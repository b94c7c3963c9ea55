"""Running native programs: workers, the phase interpreter, memory, entry from Python."""
