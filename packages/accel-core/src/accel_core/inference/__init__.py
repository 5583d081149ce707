# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What DeepSpeed's inference engines call on a device's kernels, in plain torch."""
