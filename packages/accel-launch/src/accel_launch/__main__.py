# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`python -m accel_launch`, for machines where the script `accel` is not on PATH."""

from __future__ import annotations

import argparse
import sys

from accel_core.errors import AccelError
from accel_launch import command


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m accel_launch", description="Start the ranks of a job.")
    command.add_arguments(parser)
    try:
        return command.run(parser.parse_args())
    except AccelError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
