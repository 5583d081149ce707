# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's inference functions in plain torch: torch_mlu has no fused ops for them."""

from accel_ops.inference import InferenceBuilder, InferenceCoreBuilder

__all__ = ["InferenceBuilder", "InferenceCoreBuilder"]
