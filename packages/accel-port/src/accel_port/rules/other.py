# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Rules that only report: variables of the environment, texts of errors, capability, other libraries' words."""

from __future__ import annotations

import ast
import re
from typing import ClassVar

from accel_port.rules.base import Context, Found, Level, Rule

_VARIABLES = re.compile(r"(CUDA_|NCCL_|TORCH_NCCL_|PYTORCH_CUDA_|CUBLAS_|CUDNN_|TORCH_CUDA_)\w+")


class Environment(Rule, name="environment", levels=(Level.REPORTED,)):
    """Variables of CUDA and NCCL are reported, with the vendors' own where there are some."""

    _COUNTERPARTS: ClassVar = {
        "CUDA_VISIBLE_DEVICES": "set_visible_devices_envs(os.environ, ids) of the accelerator, before its first use",
        "CUDA_LAUNCH_BLOCKING": "npu: ASCEND_LAUNCH_BLOCKING; hpu: PT_HPU_LAZY_MODE; mlu: MLU_LAUNCH_BLOCKING",
        "PYTORCH_CUDA_ALLOC_CONF": "npu: PYTORCH_NPU_ALLOC_CONF; mlu: PYTORCH_MLU_ALLOC_CONF",
        "CUDA_DEVICE_MAX_CONNECTIONS": "CUDA's own; harmless elsewhere",
    }

    def visit_Constant(self, node: ast.Constant, context: Context) -> Found:
        name = node.value
        if not isinstance(name, str) or not _VARIABLES.fullmatch(name) or name in context.seen:
            return None
        used = isinstance(context.parent(node), (ast.Subscript, ast.Dict, ast.Compare))
        if not used and context.receives(node)[0] is None:
            return None
        context.seen.add(name)
        advice = self._COUNTERPARTS.get(name, "it is CUDA's own; harmless elsewhere")
        return context.report(node, f"{name} is read by CUDA or NCCL only", advice)


class ErrorText(Rule, name="out-of-memory", levels=(Level.REPORTED,)):
    """Texts of CUDA's errors are reported: each vendor has its own; `torch.OutOfMemoryError` is common."""

    def visit_Compare(self, node: ast.Compare, context: Context) -> Found:
        match node:
            case ast.Compare(left=ast.Constant(value=str(text)) as left, ops=[ast.In(), *_]) if re.search(
                r"CUDA.*memory|CUDNN|cudnn|CUDA error", text
            ):
                context.done.add(left)
                advice = "except torch.OutOfMemoryError: each vendor's text is another"
                return context.report(node, "the text of CUDA's error", advice)
        return None


class CudaOnly(Rule, name="cuda-only", levels=(Level.REPORTED,)):
    """torch.version.cuda, extensions in CUDA, torch.cuda as a value: reported."""

    _NAMES: ClassVar = {
        "torch.version.cuda": "the version of CUDA: None on other devices",
        "torch.cuda": "torch.cuda itself is passed on; torch.get_device_module() is the device's module",
        "torch.utils.cpp_extension.CUDAExtension": "an extension in CUDA",
        "torch.utils.cpp_extension.CUDA_HOME": "the folder of CUDA",
        "torch.utils.cpp_extension.load": "an extension that is compiled, in CUDA where it has .cu files",
        "torch.backends.cuda.sdp_kernel": "torch.nn.attention.sdpa_kernel chooses on every device",
    }

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[first, ast.Constant(value="cuda") as text, *_]):
                if context.name(first) == "torch":
                    context.done.add(text)
                    return context.report(node, "torch.cuda by getattr", "torch.get_device_module()")
        return None

    def visit_Attribute(self, node: ast.Attribute | ast.Name, context: Context) -> Found:
        name = context.name(node)
        if name not in self._NAMES or isinstance(node.ctx, (ast.Store, ast.Del)):
            return None
        if name == "torch.cuda" and isinstance(context.parent(node), ast.Attribute):
            return None
        return context.report(node, self._NAMES[name], "keep it for CUDA, behind a condition")

    visit_Name = visit_Attribute
