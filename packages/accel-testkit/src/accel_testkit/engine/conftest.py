# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the conformance suite that the engine's runs need."""

from accel_testkit.suite.conftest import launcher, target

__all__ = ["launcher", "target"]
