# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Training: mixed precision, data-parallel wrappers, collectives, streams, graphs, profilers, pinned memory."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import ClassVar

from accel_port.kinds import Kind
from accel_port.rules.base import Context, Edit, Finding, Level, Rule, is_constant
from accel_port.syntax import words

_AMP = re.compile(r"torch\.cuda\.amp\.(?:autocast_mode\.|grad_scaler\.|common\.)?(\w+)")


class Autocast(Rule[ast.AST]):
    """torch.cuda.amp's autocast and GradScaler, and torch.amp's with the device left out."""

    name = "autocast"
    summary = "Mixed precision names the device: `torch.autocast(device, …)`, `torch.amp.GradScaler(device)`."
    why = (
        "On the CPU torch.cuda.amp is off with a warning; torch.autocast would be on there, with bfloat16. Where the"
        " program may run on the CPU, `enabled=` keeps it off. Without `dtype=` each device has a default of its own."
    )
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Call, ast.Attribute, ast.Name)
    _POSITIONAL: ClassVar = {
        "autocast": ("enabled", "dtype", "cache_enabled"),
        "GradScaler": ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled"),
    }
    _STATE: ClassVar = {
        "torch.get_autocast_gpu_dtype": "torch.get_autocast_dtype",
        "torch.is_autocast_enabled": "torch.is_autocast_enabled",
        "torch.set_autocast_gpu_dtype": "torch.set_autocast_dtype",
    }

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        if isinstance(node, ast.Call):
            yield from self._call(node, context)
            return
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            return
        match = _AMP.fullmatch(context.name(node))
        if match is None:
            return
        context.done.add(node)
        keyword = {"custom_fwd": "device_type=", "custom_bwd": "device_type=", "autocast": ""}.get(match[1])
        group = self._group(node)
        if keyword is not None and self._is_decorator(node, context):
            text = f"{self._function(node, match[1], context)}({keyword}{context.target.device})"
            yield context.finding(self, node, self.summary, [context.edit(node, text)], group=group)
        else:
            advice = "call it with the device where it is used"
            yield context.report(self, node, f"{match[1]} is passed on, not called", advice, group)

    def _call(self, node: ast.Call, context: Context) -> Iterator[Finding]:
        name = context.name(node.func)
        match = _AMP.fullmatch(name)
        if match is not None and match[1] in self._POSITIONAL:
            context.done.add(node.func)
            yield self._mixed(node, match[1], context)
        elif match is not None and match[1] in ("custom_fwd", "custom_bwd"):
            context.done.add(node.func)
            renamed = context.edit(node.func, self._function(node.func, match[1], context))
            edits = [renamed, context.first_argument(node, f"device_type={context.target.device}")]
            yield context.finding(self, node, self.summary, edits, group=self._group(node.func))
        elif name in ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler") or name.endswith(
            "ShardedGradScaler"
        ):
            if not node.args and not any(k.arg == "device" for k in node.keywords):
                keyword = "device=" if name.endswith("ShardedGradScaler") else ""
                edits = [context.first_argument(node, keyword + context.target.device)]
                yield context.finding(self, node, "a scaler's device is CUDA unless it is named", edits)
        elif name in self._STATE and not (name.endswith("enabled") and (node.args or node.keywords)):
            context.done.add(node.func)
            function = self._STATE[name].replace("torch", context.target.torch, 1)
            edits = [context.edit(node.func, function), context.first_argument(node, context.target.device)]
            yield context.finding(self, node, self.summary, edits)

    def _mixed(self, node: ast.Call, what: str, context: Context) -> Finding:
        names = self._POSITIONAL[what]
        group = self._group(node.func)
        starred = any(isinstance(a, ast.Starred) for a in node.args) or any(
            k.arg is None for k in node.keywords
        )
        if starred or len(node.args) > len(names):
            context.done.update(ast.walk(node.func))
            return context.report(self, node, "arguments that are not seen here", "name them", group=group)
        edits = [context.edit(node.func, self._function(node.func, what, context))]
        given = dict(zip(names, node.args, strict=False)) | {k.arg: k.value for k in node.keywords if k.arg}
        anywhere = not context.guarded(node) and context.may_run_on_cpu
        first = context.target.device_or_cpu if anywhere else context.target.device
        for keyword, argument in zip(names, node.args, strict=False):
            start = context.module.argument_start(argument, node)
            edits.append(Edit(start, start, f"{keyword}="))
        enabled = given.get("enabled")
        level, message = None, self.summary
        if anywhere and not is_constant(enabled, False):
            if enabled is None:
                first = f"{first}, enabled={context.target.has_device}"
            elif is_constant(enabled, True):
                edits.append(context.edit(enabled, context.target.has_device))
            else:
                loose = isinstance(enabled, (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr))
                before, after = ("(", ")") if loose else ("", "")
                edits += context.around(enabled, before, f"{after} and {context.target.has_device}")
        elif what == "autocast" and "dtype" not in given:
            level = Level.REVIEW
            message = "without dtype= each device has a default of its own; CUDA's is float16"
        # Before an insertion at the same place: the first argument may get its keyword there.
        edits.insert(0, context.first_argument(node, first))
        return context.finding(self, node, message, edits, level, "pass dtype=" if level else "", group)

    @staticmethod
    def _function(node: ast.AST, what: str, context: Context) -> str:
        if isinstance(node, ast.Name):
            return node.id  # its import becomes torch.amp's
        module = f"{context.target.torch}.amp"
        return f"{context.target.torch}.autocast" if what == "autocast" else f"{module}.{what}"

    @staticmethod
    def _group(node: ast.AST) -> str:
        return f"name:{node.id}" if isinstance(node, ast.Name) else ""

    @staticmethod
    def _is_decorator(node: ast.AST, context: Context) -> bool:
        parent = context.parent(node)
        return isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in parent.decorator_list


class DataParallel(Rule[ast.Call]):
    """`device_ids=` and `output_device=` of DistributedDataParallel, and `nn.DataParallel`."""

    name = "data-parallel"
    summary = "`device_ids=` and `output_device=` of DistributedDataParallel are left out."
    why = "The same for a module on one device; with them it fails on the CPU, and on hpu for all but the first rank."
    levels = (Level.REVIEW, Level.REPORTED)
    nodes = (ast.Call,)

    def find(self, node: ast.Call, context: Context) -> Iterator[Finding]:
        name = context.name(node.func)
        called = name.rpartition(".")[2]
        if name in ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
            advice = "use DistributedDataParallel: one process for each device"
            message = "nn.DataParallel works on CUDA only; elsewhere it does nothing"
            yield context.report(self, node, message, advice)
            return
        if called == "barrier" or called in ("DistributedDataParallel", "DDP"):
            positional = node.args[1:3] if called != "barrier" else []
            words = ("device_ids", "output_device")
            keywords = [k for k in node.keywords if k.arg in words]
            if not positional and not keywords:
                return
            dropped: list[ast.expr | ast.keyword] = [*positional, *keywords]
            if any(self._many(part) for part in dropped):
                advice = "one process for each device"
                yield context.report(self, node, "one module on several devices", advice)
                return
            for part in dropped:
                context.done.update(ast.walk(part))
            edits = [self._removed(part, node, context) for part in dropped]
            advice = "check that the module and its inputs are on the rank's device"
            yield context.finding(self, node, self.summary, edits, Level.REVIEW, advice)

    @staticmethod
    def _many(part: ast.AST) -> bool:
        value = part.value if isinstance(part, ast.keyword) else part
        return isinstance(value, (ast.List, ast.Tuple)) and len(value.elts) > 1

    @staticmethod
    def _removed(part: ast.expr | ast.keyword, call: ast.Call, context: Context) -> Edit:
        """Remove an argument with the comma before it, or the one behind it if it is the first."""
        module = context.module
        start, end = module.span(part)
        everything = sorted(module.span(a) for a in [*call.args, *call.keywords])
        at = everything.index((start, end))
        if at:
            return Edit(everything[at - 1][1], end, "")
        following = everything[1][0] if len(everything) > 1 else end
        return Edit(start, following, "")


class Backend(Rule[ast.AST]):
    """The backend of collectives."""

    name = "nccl"
    summary = '`"nccl"` becomes the accelerator\'s backend of collectives.'
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Constant, ast.Attribute)

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        if isinstance(node, ast.Attribute):
            name = context.name(node)
            if name in ("torch.distributed.Backend.NCCL",) or "ProcessGroupNCCL" in name.split("."):
                context.done.add(node)
                advice = "options of NCCL itself: keep them for CUDA, behind a condition"
                yield context.report(self, node, f"{name} is NCCL's own", advice)
            elif name == "torch.distributed.is_nccl_available" or name.startswith("torch.cuda.nccl"):
                context.done.add(node)
                yield context.report(self, node, "a question about NCCL", "ask is_available() of distributed")
            return
        assert isinstance(node, ast.Constant)
        if not isinstance(node.value, str) or "nccl" not in node.value.lower():
            return
        context.done.add(node)
        call, where = context.receives(node)
        text = context.target.communication_backend()
        if node.value == "cpu:gloo,cuda:nccl":
            device = context.target.device
            quote = "'" if '"' in device + text else '"'
            edits = [context.edit(node, f"f{quote}cpu:gloo,{{{device}}}:{{{text}}}{quote}")]
            advice = "on the CPU it names cpu twice, which torch refuses: choose there"
            yield context.finding(self, node, self.summary, edits, Level.REVIEW, advice)
            return
        if node.value != "nccl":
            return
        parent = context.parent(node)
        if isinstance(parent, ast.Compare):
            other = parent.left if parent.left is not node else parent.comparators[0]
            asked = isinstance(other, ast.Call) and context.name(other.func).endswith("get_backend")
            if asked:
                yield context.finding(self, node, self.summary, [context.edit(node, text)])
            else:
                yield context.report(self, node, "the user's word is compared", "change it with its option")
            return
        method = call.func.attr if call is not None and isinstance(call.func, ast.Attribute) else ""
        if method == "add_argument" and where == "default":
            advice = "the default of an option: check its help text and choices"
            edits = [context.edit(node, text)]
            yield context.finding(self, node, self.summary, edits, Level.REVIEW, advice)
            return
        known = call is not None and (
            where == "backend"
            or (
                where in (0, "dist_backend")
                and context.name(call.func).endswith(("init_process_group", "init_distributed"))
            )
        )
        match parent:
            case ast.IfExp() | ast.BoolOp(op=ast.Or()) | ast.arguments():
                known = True
            case ast.Assign() | ast.AnnAssign():
                known = "backend" in context.module.code(parent).split("=")[0].lower()
        if known:
            yield context.finding(self, node, self.summary, [context.edit(node, text)])
        else:
            yield context.report(self, node, "a text that may be a backend", "look at it")


class StreamsAndGraphs(Rule[ast.AST]):
    """Streams and events as one group; CUDA graphs, which are only reported."""

    name = "streams"
    summary = "Streams and events are the accelerator's."
    why = (
        "The CPU has none, mps has no streams: where the program may run there, the block needs a condition."
    )
    levels = (Level.REVIEW, Level.REPORTED)
    nodes = (ast.Attribute, ast.Name, ast.With)
    _OURS = ("Stream", "Event", "stream", "streams.Stream", "streams.Event")
    _NEVER: ClassVar = words(
        "ExternalStream CUDAGraph graph graphs make_graphed_callables graph_pool_handle MemPool use_mem_pool"
        " is_current_stream_capturing StreamContext"
    )

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        if isinstance(node, ast.With):
            yield from self._with(node, context)
            return
        name = context.cuda_name(node)
        if name.split(".")[0] in self._NEVER:
            context.settle(node)
            advice = "where create_graph() is None there are no graphs: run the work itself there"
            yield context.report(
                self, node, f"torch.cuda.{name} has no general counterpart", advice, group="streams"
            )
            return
        if name not in self._OURS or isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            return
        context.settle(node)
        text = context.target.function(name)
        if text is None or not context.is_called(node):
            if name == "stream" and text is not None:
                advice = "check when the line runs: it chooses the accelerator"
                message = "stream is passed on, not called"
                edits = [context.edit(node, text)]
                yield context.finding(self, node, message, edits, Level.REVIEW, advice, "streams")
                return
            if name == "stream":
                yield context.report(self, node, "stream is passed on, not called", group="streams")
                return
            generic = f"{context.target.torch}.{name.rpartition('.')[2]}"
            edits = [context.edit(node, generic)]
            message = f"{generic} is the base class of every device's"
            yield context.finding(
                self, node, message, edits, Level.REVIEW, "check what it is used for", "streams"
            )
            return
        guarded = context.guarded(node) or context.target.is_torch
        level, advice = None, ""
        if not guarded:
            level, advice = (
                Level.REVIEW,
                "the CPU has no streams: guard the block with is_synchronized_device()",
            )
        edits = [context.edit(node, text)]
        yield context.finding(self, node, self.summary, edits, level, advice, "streams")

    def _with(self, node: ast.With, context: Context) -> Iterator[Finding]:
        if not context.target.is_torch:
            return
        for item in node.items:
            call = item.context_expr
            if not context.calls(call, "torch.cuda.stream"):
                continue
            assert isinstance(call, ast.Call)
            context.done.add(call.func)
            if len(call.args) != 1:
                yield context.report(self, call, "a stream that is not seen here", group="streams")
                continue
            edits, advice = context.around(call.args[0], outer=call), "a stream that is None fails here"
            yield context.finding(self, call, self.summary, edits, Level.REVIEW, advice, "streams")


class Profiler(Rule[ast.AST]):
    """torch.profiler's activities and the keys of its tables."""

    name = "profiler"
    summary = "The profiler records what the machine supports, and sorts by the device's time."
    levels = (Level.REVIEW, Level.REPORTED)
    nodes = (ast.List, ast.Attribute, ast.Constant)

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        if isinstance(node, ast.List):
            names = {context.name(item).rpartition("ProfilerActivity.")[2] for item in node.elts}
            if names == {"CPU", "CUDA"}:
                context.done.update(ast.walk(node))
                text = f"{context.target.torch}.profiler.supported_activities()"
                yield context.finding(self, node, self.summary, [context.edit(node, text)], Level.REVIEW)
        elif isinstance(node, ast.Attribute):
            if context.name(node).endswith("ProfilerActivity.CUDA"):
                context.done.add(node)
                advice = "torch.profiler.supported_activities() has the machine's activities"
                yield context.report(self, node, "the profiler's activity of CUDA alone", advice)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            key = re.fullmatch(r"(self_)?cuda_(time_total|memory_usage|time)", node.value)
            if key and context.receives(node)[1] in ("sort_by", 0):
                context.done.add(node)
                text = repr(node.value.replace("cuda_", "device_"))
                quote = context.module.code(node)[:1]
                edits = [context.edit(node, text.replace("'", quote))]
                advice = "the key is newer torch's (2.4); older ones know only cuda_…"
                yield context.finding(self, node, self.summary, edits, Level.REVIEW, advice)


class PinnedMemory(Rule[ast.Call]):
    """`x.pin_memory()` of tensors."""

    name = "pin-memory"
    summary = "`x.pin_memory()` asks the accelerator, whose host memory it is."
    why = (
        "torch's method fails where torch knows no accelerator; the accelerator's function works everywhere."
    )
    nodes = (ast.Call,)

    def find(self, node: ast.Call, context: Context) -> Iterator[Finding]:
        func = node.func
        if context.target.is_torch or not isinstance(func, ast.Attribute) or func.attr != "pin_memory":
            return
        if node.args or node.keywords or context.name(func) or not context.uses_torch:
            return
        if "pin_memory" in context.own_names and context.kinds.of(func.value) is not Kind.TENSOR:
            yield context.report(
                self, node, "a class of these files has a pin_memory() of its own", "look at it"
            )
            return
        edits = context.around(func.value, f"{context.target.accelerator}.pin_memory(", ")", node)
        yield context.finding(self, node, self.summary, edits)
