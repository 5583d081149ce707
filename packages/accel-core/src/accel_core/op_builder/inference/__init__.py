# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of DeepSpeed's inference ops: plain torch, and fused ops of the vendor's runtime."""

from accel_core.op_builder.inference.builders import FusedFunctions, InferenceBuilder, InferenceCoreBuilder

__all__ = ["FusedFunctions", "InferenceBuilder", "InferenceCoreBuilder"]
