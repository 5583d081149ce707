# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A parameter that is edited under GatheredParameters has its former value again after a step."""

import deepspeed
import torch
from _engine import engine

model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.ones_(model.weight)
trained = engine(
    lambda params: torch.optim.SGD(params, 0.0), model, bf16={"enabled": True}, zero_optimization={"stage": 3}
)
with deepspeed.zero.GatheredParameters([model.weight], modifier_rank=0):
    model.weight.data.fill_(8.0)
trained.backward(trained(torch.ones(1, 1, dtype=torch.bfloat16)).sum())
trained.step()
with deepspeed.zero.GatheredParameters([model.weight]):
    print("set to 8.0, after a step with a rate of 0:", model.weight.item())
