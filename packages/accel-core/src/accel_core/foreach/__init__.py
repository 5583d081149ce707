# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Optimizer steps over lists of tensors in plain torch, for devices whose runtime lacks a fused op."""
