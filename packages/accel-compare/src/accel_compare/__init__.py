# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel compare`: where two runs of one program begin to compute different numbers. Importing it imports no torch."""

from accel_compare.__about__ import __version__

__all__ = ["__version__"]
