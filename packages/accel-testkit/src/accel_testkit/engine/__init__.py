# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own engine on an accelerator, over the matrix of what people configure, against plain PyTorch.

pytest --pyargs accel_testkit.engine --accel npu [--quick] [--tier device|multi]
"""
