# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Optimizer steps in plain torch (`torch._foreach_*`), with the arguments of upstream's functions."""
