# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kernels that run on the host for every accelerator: CPU optimizers, norms, page-locked memory."""
