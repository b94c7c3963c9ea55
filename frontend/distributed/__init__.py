"""Programs in several processes: joining, process groups, exchange of shards, gathering, replicated
input checks. Input: a launcher's environment and the link of `shardir.backends.distributed`.
Output: the `ProcessGroup`, and arrays assembled or gathered. `join_watchdog` runs as a separate
process without this package (its file path is passed to Python: keep it free of imports). Start
with `initialize`, then `connect`, `processes` and `shard_exchange`.
"""
