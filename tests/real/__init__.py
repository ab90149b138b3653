"""Models and steps as they stand in installed packages, each beside eager torch: `python -m tests.real`."""
