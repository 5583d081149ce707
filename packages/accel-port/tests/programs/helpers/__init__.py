# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from .device import get_device, move_to, seed_everything
from .timing import Timer

__all__ = ["Timer", "get_device", "move_to", "seed_everything"]
