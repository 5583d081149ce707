# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command `accel`: its sub-commands, and the child processes of the doctor."""
