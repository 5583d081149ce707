# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The parts of the example: a byte-level language model trained through DeepSpeed on any accelerator."""
