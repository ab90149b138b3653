"""The runtime: it turns a plan into a bound, running step with arenas, meta slots and snapshots."""
