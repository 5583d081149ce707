# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""oneCCL as the backend `ccl` of torch.distributed, through its C interface: nothing is compiled."""
