# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
"""What accel_cpu.accelerator.CPU_Accelerator asks of torch.cpu: mypy checks it, nothing runs it."""

from typing import Any

import torch.cpu as module


def calls(_: Any) -> None:
    module.is_available()
    module.synchronize(_)
