# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A program: which accelerator would a run use? Prints a line of JSON, with the runtimes that were imported for it."""

import json
import logging
import sys

import torch  # the bridge and autoloading runtimes begin here, as in any program

import accel_core

#: Import names of everything that a candidate's runtime may be.
RUNTIMES = (
    "intel_extension_for_deepspeed", "intel_extension_for_pytorch", "torch_npu", "torch_sdaa",
    "habana_frameworks.torch", "torch_mlu", "torch_supa", "torch_xmlir",
)  # fmt: skip

logging.disable(logging.WARNING)
explanation = accel_core.explain()
answer = {
    **explanation.to_dict(),
    "imported": [name for name in RUNTIMES if name in sys.modules],
    "claimed": torch._C._get_privateuse1_backend_name(),
}
if not explanation.error:
    answer["class"] = type(accel_core.get_accelerator()).__name__
print(json.dumps(answer))
