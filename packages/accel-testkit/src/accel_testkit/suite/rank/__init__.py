# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The program that ranks run: `python -m accel_testkit.suite.rank JOB FOLDER [PACKAGE.MODULE:CLASS]`."""
