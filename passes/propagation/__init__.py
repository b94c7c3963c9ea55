"""The parts of sharding propagation, one concept a file.

From the inside out: `projection` sees a tensor through the factors of an operation; `basic` and
`aggressive` decide how far each factor may be cut; `step` is one operation, memoised; `network`
is a function as operations that wake one another; `worklist` runs it to a fixed point;
`priorities` says in which rounds what may move where; `draft`, `constants` and `constraints`
prepare the function; `finish` writes the shardings back; `record` keeps what happened.
"""
