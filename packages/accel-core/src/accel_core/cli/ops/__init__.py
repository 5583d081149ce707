# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel ops list|build|test`: the ops of the accelerator that a run would use."""
