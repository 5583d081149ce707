# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Training: mixed precision, data-parallel wrappers, collectives, streams, graphs, profilers, pinned memory."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import ClassVar

from accel_port.expressions import argument, is_constant, is_cuda_text, keyword, unseen, words
from accel_port.kinds import Kind
from accel_port.rules.base import ANY, Context, Edit, Finding, Found, Level, Rule

_OWN = words("torch.autocast torch.amp.autocast torch.amp.autocast_mode.autocast torch.amp.GradScaler")
_AMP = re.compile(r"torch\.cuda\.amp\.(?:autocast_mode\.|grad_scaler\.|common\.)?(\w+)")


class Autocast(Rule, name="autocast", levels=ANY):
    """Mixed precision names the device: `torch.autocast(device, …)`, `torch.amp.GradScaler(device)`."""

    _POSITIONAL: ClassVar = {
        "autocast": ("enabled", "dtype", "cache_enabled"),
        "GradScaler": ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled"),
    }
    _STATE: ClassVar = {
        "torch.get_autocast_gpu_dtype": "torch.get_autocast_dtype",
        "torch.is_autocast_enabled": "torch.is_autocast_enabled",
        "torch.set_autocast_enabled": "torch.set_autocast_enabled",
        "torch.set_autocast_gpu_dtype": "torch.set_autocast_dtype",
    }

    def visit_Attribute(self, node: ast.Attribute | ast.Name, context: Context) -> Found:
        match = _AMP.fullmatch(context.name(node))
        if match is None or isinstance(node.ctx, (ast.Store, ast.Del)):
            return None
        group = self._group(node, context)
        if match[1] in ("custom_fwd", "custom_bwd", "autocast") and self._is_decorator(node, context):
            keyword = "" if match[1] == "autocast" else "device_type="
            text = f"{self._function(node, match[1], context)}({keyword}{self._device(node, context)})"
            return context.rewrite(node, text, group=group)
        advice = "call it with the device where it is used"
        return context.report(node, f"{match[1]} is passed on, not called", advice, group)

    visit_Name = visit_Attribute

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        name, device = context.name(node.func), self._device(node, context)
        match = _AMP.fullmatch(name)
        what = match[1] if match else ""
        if what in self._POSITIONAL:
            context.done.add(node.func)
            return self._mixed(node, what, context)
        if what in ("custom_fwd", "custom_bwd"):
            renamed = context.edit(node.func, self._function(node.func, what, context))
            edits = [renamed, context.first_argument(node, f"device_type={device}")]
        elif name in _OWN or name.endswith("ShardedGradScaler"):
            return self._own(node, name, context)
        elif name in self._STATE and len(node.args) + len(node.keywords) == name.startswith("torch.set"):
            function = self._STATE[name].replace("torch", context.target.torch, 1)
            edits = [context.edit(node.func, function), context.first_argument(node, device)]
        else:
            return None
        context.done.add(node.func)
        return context.finding(node, edits, group=self._group(node.func, context) if what else "")

    def _own(self, node: ast.Call, name: str, context: Context) -> Found:
        """Port torch.amp's own functions for CUDA, which a scaler is for that names no device."""
        scaler = name.endswith("GradScaler")
        device = argument(node, "device" if scaler else "device_type")
        anywhere, text = context.anywhere(node), self._device(node, context)
        if unseen(node) or not (scaler if device is None else anywhere and is_cuda_text(device)):
            return None  # a text of a device is ported as such
        given, at = keyword(node, "enabled"), 5 if scaler else 2
        enabled = given.value if given else node.args[at] if len(node.args) > at else None
        edits = self._off_on_cpu(enabled, context) if anywhere and enabled else []
        off = f", enabled={context.target.has_device}" if anywhere and enabled is None else ""
        if device is None:
            named = "device=" if name.endswith("ShardedGradScaler") else ""
            message = "a scaler's device is CUDA unless it is named"
            edits.append(context.first_argument(node, f"{named}{text}{off}"))
            return context.finding(node, edits, message=message)
        context.done.add(device)
        end = context.module.span(node.args[-1] if node.args else device)[1]
        return context.finding(
            node, [context.edit(device, text), *edits, *([Edit(end, end, off)] if off else [])]
        )

    @staticmethod
    def _device(node: ast.AST, context: Context) -> str:
        return context.target.device_or_cpu if context.anywhere(node) else context.target.device

    @staticmethod
    def _off_on_cpu(enabled: ast.expr, context: Context) -> list[Edit]:
        condition = context.target.has_device
        if is_constant(enabled, False) or context.calls(enabled, "torch.cuda.is_available"):
            return []
        if is_constant(enabled, True):
            return [context.edit(enabled, condition)]
        loose = isinstance(enabled, (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr))
        before, after = ("(", ")") if loose else ("", "")
        return context.around(enabled, before, f"{after} and {condition}")

    def _mixed(self, node: ast.Call, what: str, context: Context) -> Finding:
        names = self._POSITIONAL[what]
        group = self._group(node.func, context)
        if unseen(node) or len(node.args) > len(names):
            context.take(node.func)
            return context.report(node, "arguments that are not seen here", "name them", group)
        edits = [context.edit(node.func, self._function(node.func, what, context))]
        for name, value in zip(names, node.args, strict=False):
            start = context.module.argument_start(value, node)
            edits.append(Edit(start, start, f"{name}="))
        given = dict(zip(names, node.args, strict=False)) | {k.arg: k.value for k in node.keywords if k.arg}
        anywhere, first = context.anywhere(node), self._device(node, context)
        enabled = given.get("enabled")
        level, message = None, ""
        if anywhere and not is_constant(enabled, False):
            if enabled is None:
                first = f"{first}, enabled={context.target.has_device}"
            else:
                edits += self._off_on_cpu(enabled, context)
        elif what == "autocast" and "dtype" not in given:
            level = Level.REVIEW
            message = "without dtype= each device has its own default; CUDA's is float16"
        # Before an insertion at the same place: the first argument may get its keyword there.
        edits.insert(0, context.first_argument(node, first))
        return context.finding(node, edits, level, "pass dtype=" if level else "", message, group)

    def _function(self, node: ast.AST, what: str, context: Context) -> str:
        if isinstance(node, ast.Name) and self._group(node, context):
            return node.id  # its import becomes torch.amp's
        module = f"{context.target.torch}.amp"
        return f"{context.target.torch}.autocast" if what == "autocast" else f"{module}.{what}"

    @staticmethod
    def _group(node: ast.AST, context: Context) -> str:
        """Return the group of a name that an import brings, empty for another alias."""
        bindings = context.module.bindings(node) if isinstance(node, ast.Name) else []
        imported = isinstance(node, ast.Name) and any(b.kind == "import" for b in bindings)
        return f"name:{node.id}" if imported and isinstance(node, ast.Name) else ""

    @staticmethod
    def _is_decorator(node: ast.AST, context: Context) -> bool:
        parent = context.parent(node)
        return isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in parent.decorator_list


class DataParallel(Rule, name="data-parallel", levels=(Level.REVIEW, Level.REPORTED)):
    """`device_ids=` and `output_device=` of DistributedDataParallel are left out."""

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        name = context.name(node.func)
        called = name.rpartition(".")[2]
        if name in ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
            message = "nn.DataParallel works on CUDA only; elsewhere it does nothing"
            return context.report(node, message, "use DistributedDataParallel: one process for each device")
        if called not in ("barrier", "DistributedDataParallel", "DDP"):
            wraps = called == "partial" and context.name(node.args[0] if node.args else None).startswith(
                "torch."
            )
            settings = isinstance(node.func, ast.Name) and node.func.id == "dict"
            if not keyword(node, "device_ids") or not (wraps or settings):
                return None
            return context.report(node, "device_ids of DistributedDataParallel, passed on", "leave it out")
        dropped: list[ast.expr | ast.keyword] = [] if called == "barrier" else [*node.args[1:3]]
        words = ("device_ids", "output_device")
        dropped += [k for k in node.keywords if k.arg in words and not is_constant(k.value, None)]
        if not dropped:
            return None
        if any(self._many(part) for part in dropped):
            return context.report(node, "one module on several devices", "one process for each device")
        context.take(*dropped)
        edits = [self._removed(part, dropped, node, context) for part in dropped]
        advice = "check that the module and its inputs are on the rank's device"
        return context.finding(node, edits, Level.REVIEW, advice)

    @staticmethod
    def _many(part: ast.AST) -> bool:
        value = part.value if isinstance(part, ast.keyword) else part
        return isinstance(value, (ast.List, ast.Tuple)) and len(value.elts) > 1

    @staticmethod
    def _removed(part: ast.AST, dropped: Sequence[ast.AST], call: ast.Call, context: Context) -> Edit:
        """Remove an argument with the comma before it, or the one behind it if none before it stays."""
        module = context.module
        start, end = module.span(part)
        everything = sorted(module.span(a) for a in [*call.args, *call.keywords])
        at, gone = everything.index((start, end)), [module.span(each) for each in dropped]
        if any(span not in gone for span in everything[:at]):
            return Edit(everything[at - 1][1], end, "")
        if at + 1 < len(everything):
            return Edit(start, everything[at + 1][0], "")
        comma = re.match(r"\s*,", module.text[end:])
        return Edit(start, end + (comma.end() if comma else 0), "")


class NcclBackend(Rule, name="nccl", levels=ANY):
    """`"nccl"` becomes the accelerator's backend of collectives."""

    def visit_Attribute(self, node: ast.Attribute, context: Context) -> Found:
        name = context.name(node)
        if name == "torch.distributed.Backend.NCCL" or "ProcessGroupNCCL" in name.split("."):
            advice = "options of NCCL itself: keep them for CUDA, behind a condition"
            return context.report(node, f"{name} is NCCL's own", advice)
        if name == "torch.distributed.is_nccl_available" or name.startswith("torch.cuda.nccl"):
            return context.report(node, "a question about NCCL", "ask is_available() of distributed")
        return None

    def visit_Constant(self, node: ast.Constant, context: Context) -> Found:
        if not isinstance(node.value, str) or "nccl" not in node.value.lower():
            return None
        context.done.add(node)
        target = context.target.anywhere if context.anywhere(node) else context.target
        text, device = target.communication_backend, target.device
        if node.value == "cpu:gloo,cuda:nccl":
            quote = "'" if '"' in device + text else '"'
            both = f"f{quote}cpu:gloo,{{{device}}}:{{{text}}}{quote}"
            advice = "on the CPU it names cpu twice, which torch refuses: choose there"
            return context.rewrite(node, both, Level.REVIEW, advice)
        if node.value != "nccl":
            return None
        call, where = context.receives(node)
        parent = context.parent(node)
        known = False
        match parent:
            case ast.Compare(left=left, comparators=[right, *_]):
                other = left if left is not node else right
                known = isinstance(other, ast.Call) and context.name(other.func).endswith("get_backend")
                if not known:
                    return context.report(node, "the user's word is compared", "change it with its option")
            case ast.IfExp() | ast.BoolOp(op=ast.Or()) | ast.arguments():
                known = True
            case ast.Assign() | ast.AnnAssign():
                known = "backend" in context.module.code(parent).split("=")[0].lower()
            case ast.Dict(keys=keys, values=values) if node in values:
                key = keys[values.index(node)]
                if isinstance(key, ast.Constant) and "backend" in str(key.value):
                    message = "a backend in a table of settings"
                    return context.rewrite(node, text, Level.REVIEW, message=message)
        if call is not None:
            if (
                isinstance(call.func, ast.Attribute)
                and call.func.attr == "add_argument"
                and where == "default"
            ):
                advice = "the default of an option: check its help text and choices"
                return context.rewrite(node, text, Level.REVIEW, advice)
            starts = context.name(call.func).endswith(("init_process_group", "init_distributed"))
            text = context.target.communication_backend if starts else text
            known = where == "backend" or (where in (0, "dist_backend") and starts)
        if known:
            return context.rewrite(node, text)
        return context.report(node, "a text that may be a backend", "look at it")


class StreamsAndGraphs(Rule, name="streams", levels=(Level.REVIEW, Level.REPORTED)):
    """Streams and events are the accelerator's."""

    _OURS = ("Stream", "Event", "stream", "streams.Stream", "streams.Event")
    _NEVER: ClassVar = words(
        "ExternalStream CUDAGraph graph graphs make_graphed_callables graph_pool_handle MemPool use_mem_pool"
        " is_current_stream_capturing StreamContext"
    )

    def visit_Attribute(self, node: ast.Attribute | ast.Name, context: Context) -> Found:
        name = context.cuda_name(node)
        never = name.split(".")[0] in self._NEVER
        if not never and (name not in self._OURS or isinstance(node.ctx, (ast.Store, ast.Del))):
            return None
        if never:
            advice = "where create_graph() is None there are no graphs: run the work itself there"
            message = f"torch.cuda.{name} has no general counterpart"
            return context.report(node, message, advice, "streams")
        text = context.target.function(name)
        if text is not None and context.is_called(node):
            if context.guarded(node) or context.target.is_torch:
                return context.rewrite(node, text, group="streams")
            advice = "the CPU has no streams: guard the block with is_synchronized_device()"
            return context.rewrite(node, text, Level.REVIEW, advice, group="streams")
        if name == "stream":
            return None if text else context.report(node, "stream is passed on, not called", group="streams")
        text = f"{context.target.torch}.{name.rpartition('.')[2]}"
        message = f"{text} is the base class of every device's"
        return context.rewrite(node, text, Level.REVIEW, "check what it is used for", message, "streams")

    visit_Name = visit_Attribute

    def visit_With(self, node: ast.With, context: Context) -> Found:
        entered = [item.context_expr for item in node.items] if context.target.is_torch else []
        return [
            self._entered(call, context)
            for call in entered
            if isinstance(call, ast.Call) and context.calls(call, "torch.cuda.stream")
        ]

    @staticmethod
    def _entered(call: ast.Call, context: Context) -> Finding:
        context.done.add(call.func)
        if len(call.args) != 1:
            return context.report(call, "a stream that is not seen here", group="streams")
        stream = call.args[0]
        made = context.module.bindings(stream) if isinstance(stream, ast.Name) else []
        parts = (part for binding in made if binding.value for part in ast.walk(binding.value))
        if any(is_constant(part, None) for part in parts):
            return context.report(call, "a stream that may be None, which fails in `with`", group="streams")
        edits, advice = context.around(stream, outer=call), "a stream that is None fails here"
        return context.finding(call, edits, Level.REVIEW, advice, group="streams")


class Profiler(Rule, name="profiler", levels=(Level.REVIEW, Level.REPORTED)):
    """The profiler records what the machine supports, and sorts by the device's time."""

    def visit_List(self, node: ast.List, context: Context) -> Found:
        names = {context.name(item).rpartition("ProfilerActivity.")[2] for item in node.elts}
        if names != {"CPU", "CUDA"}:
            return None
        context.take(node)
        return context.rewrite(node, f"{context.target.torch}.profiler.supported_activities()", Level.REVIEW)

    def visit_Attribute(self, node: ast.Attribute, context: Context) -> Found:
        if not context.name(node).endswith("ProfilerActivity.CUDA"):
            return None
        advice = "torch.profiler.supported_activities() has the machine's activities"
        return context.report(node, "the profiler's activity of CUDA alone", advice)

    def visit_Constant(self, node: ast.Constant, context: Context) -> Found:
        key = re.fullmatch(r"(self_)?cuda_(time_total|memory_usage|time)", str(node.value))
        if not key or context.receives(node)[1] not in ("sort_by", 0):
            return None
        quote = context.module.code(node)[:1]
        text = f"{quote}{key[1] or ''}device_{key[2]}{quote}"
        advice = "the key is newer torch's (2.4); older ones know only cuda_…"
        return context.rewrite(node, text, Level.REVIEW, advice)


class PinnedMemory(Rule, name="pin-memory"):
    """`x.pin_memory()` asks the accelerator, whose host memory it is."""

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        func = node.func
        if context.target.is_torch or not isinstance(func, ast.Attribute) or func.attr != "pin_memory":
            return None
        if node.args or node.keywords or context.name(func) or not context.uses_torch:
            return None
        if "pin_memory" in context.own_names and context.kinds.of(func.value) is not Kind.TENSOR:
            return context.report(node, "a class of these files has its own pin_memory()", "look at it")
        edits = context.around(func.value, f"{context.target.accelerator}.pin_memory(", ")", node)
        return context.finding(node, edits)
