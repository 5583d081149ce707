# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A good vendor package, the control of the conformance suite: two pretended devices in host memory."""
