"""The kernel that runs each op, measured once on one machine and kept as text: `aicf.lock`."""
