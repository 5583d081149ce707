# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
from typing import Any, overload

import torch

NpuFusedAdadelta: Any
NpuFusedAdam: Any
NpuFusedAdamP: Any
NpuFusedAdamW: Any
NpuFusedBertAdam: Any
NpuFusedLamb: Any
NpuFusedOptimizerBase: Any
NpuFusedRMSprop: Any
NpuFusedRMSpropTF: Any
NpuFusedSGD: Any
distributed_muon: Any
npu_fused_adadelta: Any
npu_fused_adam: Any
npu_fused_adamp: Any
npu_fused_adamw: Any
npu_fused_bert_adam: Any
npu_fused_lamb: Any
npu_fused_optim_base: Any
npu_fused_rmsprop: Any
npu_fused_rmsprop_tf: Any
npu_fused_sgd: Any
