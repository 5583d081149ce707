# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The torch.compile backend that Tecorigin documents, if the installed torch_sdaa registers it."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import torch

DOCUMENTED = "teco_inductor"
_REGISTRY = "torch._dynamo.backends.registry"


def default() -> str:
    """Return `teco_inductor` if it is registered, else `inductor`."""
    return DOCUMENTED if _registered() else "inductor"


def _registered() -> bool:
    # DeepSpeed calls this at its import, and torch's compiler takes seconds to load. It is loaded already if a
    # backend was registered by a call; otherwise only an entry point can declare one.
    if any(point.name == DOCUMENTED for point in entry_points(group="torch_dynamo_backends")):
        return True
    return _REGISTRY in sys.modules and DOCUMENTED in torch._dynamo.list_backends(exclude_tags=())
