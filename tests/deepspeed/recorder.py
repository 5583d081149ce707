# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pytest plug-in of the runs of DeepSpeed's tests: write each test's outcome as it ends, a JSON object a line."""

import json
import multiprocessing
import os
import sys

import pytest
from _pytest import outcomes

#: DeepSpeed's distributed tests start ranks from a fork server: imported there once, not in each rank.
PRELOADED = ["torch", "deepspeed", "recorder"]


def _admit_bf16():
    """State a CUDA and NCCL: without them DeepSpeed's bf16 tests run on npu, hpu and xpu alone."""
    from deepspeed.git_version_info import torch_info

    torch_info.update(cuda_version="12.8", nccl_version="2.27")


if sys.argv[0] == "-c":  # the fork server
    # A rank in which `pytest.raises` fails would end as if killed, and its test wait until the limit.
    outcomes.OutcomeException.__bases__ = (Exception,)
    outcomes.Failed.__module__ = outcomes.__name__  # by which it is found when the rank sends it
    _admit_bf16()


def pytest_configure():
    _admit_bf16()
    multiprocessing.set_forkserver_preload(PRELOADED)
    pytest.exit = _fail  # one test over DS_UNITTEST_TIMEOUT is no reason to leave out the rest


def _fail(reason, returncode=None):
    pytest.fail(reason)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _write(report.nodeid, report.outcome, _reason(report), report.duration)


def pytest_collectreport(report):
    if report.outcome != "passed":
        _write(report.nodeid, report.outcome, _reason(report), 0.0)


def _reason(report):
    """Return the last line that tells why: of an error the exception, of a skip its text."""
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else str(report.longrepr)).strip().splitlines() or [""]
    return lines[0] if crash else lines[-1]


def _write(name, outcome, reason, seconds):
    row = {"test": name, "outcome": outcome, "reason": reason[:300], "seconds": round(seconds, 2)}
    with open(os.environ["DEEPSPEED_TESTS_RECORD"], "a", encoding="utf-8") as record:
        record.write(json.dumps(row) + "\n")
