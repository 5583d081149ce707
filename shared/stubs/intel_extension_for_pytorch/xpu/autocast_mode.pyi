# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
from typing import Any, overload

import torch

HAS_NUMPY: Any
class autocast:
    def __init__(self, enabled: Any = ..., dtype: Any = ..., cache_enabled: Any = ...) -> None: ...
def custom_bwd(bwd: Any) -> Any: ...
def custom_fwd(fwd: Any = ..., *, cast_inputs: Any = ...) -> Any: ...
np: Any
