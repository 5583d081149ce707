# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare DeepSpeed's engine on an accelerator with plain PyTorch, over a matrix of configurations.

pytest --pyargs accel_testkit.engine --accel npu [--quick] [--tier device|multi]
"""
