# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
from typing import Any, overload

import torch

class autocast:
    def __init__(self, enabled: bool = ..., dtype: torch.dtype = ..., cache_enabled: bool = ...) -> None: ...
def custom_bwd(bwd: Any) -> Any: ...
def custom_fwd(fwd: Any = ..., *, cast_inputs: Any = ...) -> Any: ...
