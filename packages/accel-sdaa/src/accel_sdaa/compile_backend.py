# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The torch.compile backend that Tecorigin documents, where the installed torch_sdaa registers it."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import torch

DOCUMENTED = "teco_inductor"
_REGISTRY = "torch._dynamo.backends.registry"


def default() -> str:
    """`teco_inductor` where torch.compile has it, else `inductor`."""
    return DOCUMENTED if _registered() else "inductor"


def _registered() -> bool:
    # DeepSpeed asks at import. torch's compiler takes seconds to load, and who registered a backend by a call
    # has loaded it already; else only an entry point can name one.
    if any(point.name == DOCUMENTED for point in entry_points(group="torch_dynamo_backends")):
        return True
    return _REGISTRY in sys.modules and DOCUMENTED in torch._dynamo.list_backends(exclude_tags=())
