# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is only reported: variables of the environment, texts of errors, capability, other libraries' words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import ClassVar

from accel_port.rules.base import Context, Finding, Level, Rule

_VARIABLES = re.compile(r"(CUDA_|NCCL_|TORCH_NCCL_|PYTORCH_CUDA_|CUBLAS_|CUDNN_|TORCH_CUDA_)\w+")


class Environment(Rule[ast.Constant]):
    """Environment variables of CUDA and NCCL."""

    name = "environment"
    summary = "Variables of CUDA and NCCL are reported, with the vendors' own where there are some."
    levels = (Level.REPORTED,)
    nodes = (ast.Constant,)
    _COUNTERPARTS: ClassVar = {
        "CUDA_VISIBLE_DEVICES": "set_visible_devices_envs(os.environ, ids) of the accelerator, before its first use",
        "CUDA_LAUNCH_BLOCKING": "npu: ASCEND_LAUNCH_BLOCKING; hpu: PT_HPU_LAZY_MODE; mlu: MLU_LAUNCH_BLOCKING",
        "PYTORCH_CUDA_ALLOC_CONF": "npu: PYTORCH_NPU_ALLOC_CONF; mlu: PYTORCH_MLU_ALLOC_CONF",
        "CUDA_DEVICE_MAX_CONNECTIONS": "CUDA's own; harmless elsewhere",
    }

    def find(self, node: ast.Constant, context: Context) -> Iterator[Finding]:
        if not isinstance(node.value, str) or not _VARIABLES.fullmatch(node.value):
            return
        if node.value in context.seen:
            return
        parent = context.parent(node)
        call, _ = context.receives(node)
        used = isinstance(parent, (ast.Subscript, ast.Dict, ast.Compare)) or call is not None
        if used:
            context.seen.add(node.value)
            advice = self._COUNTERPARTS.get(node.value, "it is CUDA's own; harmless elsewhere")
            yield context.report(self, node, f"{node.value} is read by CUDA or NCCL only", advice)


class ErrorText(Rule[ast.Compare]):
    """Texts that are looked for in errors."""

    name = "out-of-memory"
    summary = (
        "Texts of CUDA's errors are reported: each vendor has its own; `torch.OutOfMemoryError` is common."
    )
    levels = (Level.REPORTED,)
    nodes = (ast.Compare,)

    def find(self, node: ast.Compare, context: Context) -> Iterator[Finding]:
        left = node.left
        text = left.value if isinstance(left, ast.Constant) and isinstance(node.ops[0], ast.In) else None
        if isinstance(text, str) and re.search(r"CUDA.*memory|CUDNN|cudnn|CUDA error", text):
            context.done.add(left)
            advice = "except torch.OutOfMemoryError: each vendor's text is another"
            yield context.report(self, node, "the text of CUDA's error", advice)


class CudaOnly(Rule[ast.AST]):
    """Parts of torch that are CUDA's own."""

    name = "cuda-only"
    summary = "torch.version.cuda, extensions in CUDA, torch.cuda as a value: reported."
    levels = (Level.REPORTED,)
    nodes = (ast.Attribute, ast.Name, ast.Call)
    _NAMES: ClassVar = {
        "torch.version.cuda": "the version of CUDA: None on other devices",
        "torch.cuda": "torch.cuda itself is passed on; torch.get_device_module() is the device's module",
        "torch.utils.cpp_extension.CUDAExtension": "an extension in CUDA",
        "torch.utils.cpp_extension.CUDA_HOME": "the folder of CUDA",
        "torch.utils.cpp_extension.load": "an extension that is compiled, in CUDA where it has .cu files",
        "torch.backends.cuda.sdp_kernel": "torch.nn.attention.sdpa_kernel chooses on every device",
    }

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[first, ast.Constant(value="cuda") as text, *_]):
                if context.name(first) == "torch":
                    context.done.add(text)
                    yield context.report(self, node, "torch.cuda by getattr", "torch.get_device_module()")
        name = context.name(node)
        if name not in self._NAMES or isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            return
        if name == "torch.cuda" and isinstance(context.parent(node), ast.Attribute):
            return
        context.done.add(node)
        yield context.report(self, node, self._NAMES[name], "keep it for CUDA, behind a condition")
