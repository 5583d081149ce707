# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class, its ops, and the conformance suite, in processes that have a simulated MLU."""

from __future__ import annotations

from pathlib import Path

from accel_testkit import simulated_tests


def test_tests_of_the_class_and_its_ops_pass() -> None:
    simulated_tests.run("mlu", Path(__file__).with_name("device"))


def test_conformance_needs_no_more_than_a_device() -> None:
    simulated_tests.run(
        "mlu", "--pyargs", "accel_testkit.suite", "--accel", "mlu", "--tier", "device", "--quick"
    )
