# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The CPU in a program that has trained on a device: what is missing is said, and doing what is said works."""

import pytest

from shared.children import on_device

pytestmark = pytest.mark.upstream

PROGRAM = r"""
import re

import deepspeed
import torch
import torch.distributed as dist

import accel_core
from accel_core.errors import NoBackendForCollectives
from accel_cpu import CPU_Accelerator

deepspeed.init_distributed()
with accel_core.using(CPU_Accelerator()):
    try:
        deepspeed.init_distributed()
    except NoBackendForCollectives as error:
        advice = re.search(r"init_process_group\('(.+)'\)", error.do)[1]
dist.destroy_process_group()
dist.init_process_group(advice, store=dist.HashStore(), rank=0, world_size=1)
deepspeed.init_distributed()
with accel_core.using(CPU_Accelerator()):
    deepspeed.init_distributed()
    dist.all_reduce(torch.ones(2))
dist.all_reduce(torch.ones(2, device="npu"))
print(advice)
"""


def test_collectives_of_the_cpu_after_those_of_a_device_work_as_the_error_says() -> None:
    assert on_device("npu", "-c", PROGRAM).out.splitlines()[-1] == "cpu:gloo,npu:hccl"
