# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the class does on a device: run by tests/vendors/test_simulated.py, or on a machine with a CUDA device."""

import subprocess
import sys

import pytest

IMPORT = """
import deepspeed, torch
from accel_core import get_accelerator
print(get_accelerator().device_name(), torch.cuda.is_initialized())
"""


@pytest.mark.upstream
def test_importing_deepspeed_opens_no_device():
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["cuda", "False"]
