# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`python -m accel_launch`, for machines where the script `accel` is not on PATH."""

from __future__ import annotations

import sys

from accel_core.cli.main import main as accel


def main() -> int:
    """Run `accel launch` with this command line; returns the exit status."""
    return accel(["launch", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
