# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Names that `op_builder_dir()` returns for every device that has an `accel_ops.table.op_table`.

DeepSpeed imports each file of that package and asks the accelerator for a builder of each name in it.
"""
