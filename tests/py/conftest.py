"""Shared test set-up: tests marked `gpu` need a CUDA device and are skipped where there is none."""

from __future__ import annotations

import pytest

from aicf_mlir import _C


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a CUDA device and a build with CUDA")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _C.device_count("cuda"):
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
