# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Parts of the ops of a device: kernels that a driver loads, self-checks."""
