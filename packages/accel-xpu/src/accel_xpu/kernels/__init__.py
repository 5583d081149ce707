# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Our kernels on Intel's GPUs: packaged SPIR-V, started through libsycl by a small library of ours, the shim."""
