# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kernels of the host, from a library of C++ or in plain torch, and what their calls need."""
