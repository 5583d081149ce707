# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command `accel io`: measures file I/O in a folder, and chooses DeepSpeed's options for it."""
