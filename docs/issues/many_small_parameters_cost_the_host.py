# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Calls from Python for each small parameter in an iteration of ZeRO 0, 1 and 2, compared with torch's own DDP."""

import sys

import torch
from _engine import engine

PARAMETERS = 200


def layers():
    """A model of many small parameters."""
    return torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(PARAMETERS // 2))).bfloat16()


def calls(model, backward, step):
    """The calls of functions in an iteration after the first two."""
    for _ in range(3):
        events = []
        sys.setprofile(lambda frame, event, argument, kept=events: kept.append(event))
        backward(model(torch.ones(1, 16, dtype=torch.bfloat16)).sum())
        step()
        sys.setprofile(None)
    return events.count("call") + events.count("c_call")


def adam(parameters):
    """The optimizer of all."""
    return torch.optim.Adam(parameters, lr=1e-3)


of = {}
for stage in (0, 1, 2):
    trained = engine(adam, layers(), bf16={"enabled": True}, zero_optimization={"stage": stage})
    of[stage] = calls(trained, trained.backward, trained.step)
model = torch.nn.parallel.DistributedDataParallel(layers())
optimizer = adam(model.parameters())
alone = calls(model, lambda loss: loss.backward(), lambda: (optimizer.step(), optimizer.zero_grad()))
for stage, found in of.items():
    print(f"calls of ZeRO {stage}, as a multiple of DDP's, rounded down: {found // alone}")
