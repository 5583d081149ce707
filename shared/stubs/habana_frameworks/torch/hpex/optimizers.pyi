# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
from typing import Any, overload

import torch

Adam: Any
AdamW: Any
FusedAdagrad: Any
class FusedAdamW:
    def __init__(self, params: Any, lr: Any = ..., betas: Any = ..., eps: Any = ..., weight_decay: Any = ..., bias_correction: Any = ..., moments_dtype: Any = ...) -> None: ...
class FusedLamb:
    def __init__(self, params: Any, lr: Any = ..., bias_correction: Any = ..., betas: Any = ..., eps: Any = ..., weight_decay: Any = ..., amsgrad: Any = ..., adam_w_mode: Any = ..., grad_averaging: Any = ..., set_grad_none: Any = ..., max_grad_norm: Any = ..., use_lamb: Any = ..., fused: Any = ..., dtype: Any = ...) -> None: ...
FusedLars: Any
FusedResourceApplyMomentum: Any
FusedSGD: Any
