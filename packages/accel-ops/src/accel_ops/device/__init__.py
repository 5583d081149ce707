# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What ops of a device need: kernels that a driver loads, self-checks."""
