# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A good vendor package, the control of the conformance suite: two pretended devices in host memory."""

from accel_core.vendor import lazy_exports

__all__ = ["GOOD_Accelerator"]

__getattr__ = lazy_exports(__name__, {"GOOD_Accelerator": "accelerator"})
