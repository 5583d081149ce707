# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Optimizer steps in plain torch (`torch._foreach_*`), with upstream's arguments."""
