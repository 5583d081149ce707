# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's quantizer in plain torch: integers of 8 and 4 bits in groups, as ZeRO++ sends them."""

from accel_core.op_builder.quantizer.builder import QuantizerBuilder
from accel_core.op_builder.quantizer.functions import QuantizationType, QuantizerFunctions

__all__ = ["QuantizationType", "QuantizerBuilder", "QuantizerFunctions"]
