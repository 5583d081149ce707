# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel doctor`: the state of every accelerator, the one that a run would use, and problems."""
