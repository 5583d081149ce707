# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The unchanged torch_npu on an emulated CANN; see docs/emulated-cann.md."""
