# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Device kernels on the host: the same source as on devices, compiled by g++, a fiber for each thread of a block."""

from accel_sim.driver.host_kernels import HostKernels, KernelFault

__all__ = ["HostKernels", "KernelFault"]
