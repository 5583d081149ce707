# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where things run."""

import random

import numpy as np
import torch


def get_device(gpu_id=None):
    """Return the device to use: the GPU if there is one."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if gpu_id is None:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cuda:%d" % gpu_id)


def move_to(obj, device):
    """Move a tensor, or whatever holds tensors."""
    if torch.is_tensor(obj):
        return obj.to(device)
    if isinstance(obj, dict):
        return {k: move_to(v, device) for k, v in obj.items()}
    if isinstance(obj, (list, tuple)):
        return type(obj)(move_to(v, device) for v in obj)
    return obj


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed(seed)
        torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
