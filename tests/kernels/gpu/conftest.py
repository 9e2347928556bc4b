"""What fails is told at once where output is not captured (`-s`): a run on a lent device may be cut short."""

from __future__ import annotations

import os

import pytest

SHOWN = 2500  # characters, the last ones


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid}:\n{report.longreprtext[-SHOWN:]}", flush=True)
