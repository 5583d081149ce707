# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Version of accel-rehearse."""

__version__ = "0.1.0"
