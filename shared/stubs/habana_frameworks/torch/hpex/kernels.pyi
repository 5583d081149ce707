# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
from typing import Any, overload

import torch

FusedSDPA: Any
RotaryPosEmbeddingMode: Any
def apply_rotary_pos_emb(p: Any, *args: Any) -> Any: ...
