"""From a plan to a bound, running step: arenas, meta slots, snapshots."""
