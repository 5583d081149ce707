# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Our kernels on NVIDIA's GPUs: packaged images or NVRTC, started through the driver; no nvcc, no headers of torch."""
