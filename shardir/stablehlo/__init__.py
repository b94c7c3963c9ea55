"""StableHLO text with Shardy's shardings, as JAX and XLA exchange programs."""
