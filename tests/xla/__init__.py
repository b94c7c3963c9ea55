"""Programs of ours on the CPU devices of XLA, which are in a process of their own."""
