"""StableHLO text with Shardy's shardings, the exchange format of JAX and XLA."""
