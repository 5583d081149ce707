# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A program: `diagnose.py SECONDS OUT` is `accel doctor --json`, whose report goes into a file."""

import contextlib
import os
import sys

from accel_core.cli.main import main

with open(sys.argv[2] + os.environ.get("RANK", ""), "w") as report, contextlib.redirect_stdout(report):
    main(["doctor", "--json", "--timeout", sys.argv[1]])
