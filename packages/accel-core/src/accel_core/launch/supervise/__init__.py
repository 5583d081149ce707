# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Starts and ends processes: nothing that a job started remains when its launcher has ended, however it ended."""
