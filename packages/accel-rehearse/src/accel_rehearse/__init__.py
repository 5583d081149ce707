# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel rehearse`: run an unchanged training script on a device whose memory is counted, not committed."""

from accel_rehearse.__about__ import __version__

__all__ = ["__version__"]
