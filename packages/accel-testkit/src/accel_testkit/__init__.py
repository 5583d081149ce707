# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Conformance suite and simulated devices. Importing it imports neither torch nor pytest."""

from accel_testkit.__about__ import __version__

__all__ = ["__version__"]
