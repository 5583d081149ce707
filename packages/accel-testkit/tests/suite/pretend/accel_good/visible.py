# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The devices that GOOD_VISIBLE_DEVICES shows to a process."""

import os


def count(present: int) -> int:
    """Return how many of the devices the process may use; all if the variable is not set."""
    text = os.environ.get("GOOD_VISIBLE_DEVICES")
    if text is None:
        return present
    return sum(part.isdigit() and int(part) < present for part in text.split(","))
