# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""On a simulated NPU: the bridge to DeepSpeed."""

import pytest

from shared.children import on_device

SHOW = "from deepspeed.accelerator import get_accelerator; print(type(get_accelerator()).__module__)"


@pytest.mark.upstream
@pytest.mark.parametrize(
    "first", ["import torch_npu, accel_npu", "import torch, torch_npu", "import deepspeed"]
)
@pytest.mark.sample("import deepspeed")
def test_deepspeed_has_this_accelerator_whatever_is_imported_first(first):
    shown = on_device("npu", "-c", f"{first}; {SHOW}").out
    assert shown.splitlines()[-1] == "accel_npu.accelerator"
