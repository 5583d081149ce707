# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mutants of a vendor's accelerator and ops, derived by rules from the source, and the checks that notice them.

`source` and `rules` derive mutants; `reach` records which check executes which line; `session` runs, in forked
processes of one pytest session, the checks that reach a mutant; `report` counts. The command is `cli`.
"""
