"""The runtime: it turns a plan into a bound, running step with arenas, host scalars and snapshots."""
