# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Engines: what starts the ranks of a plan on its hosts. Each carries out the same plan with the same guards.

Another package adds one by an entry point of the group `accel.launchers`: its name is that of `--launcher`, its object
an `Engine`.
"""
