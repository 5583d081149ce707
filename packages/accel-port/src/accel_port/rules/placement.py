# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where tensors and modules are put: `.cuda()`, and integers that stand for devices."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from accel_port.expressions import argument, is_constant, keyword, named, unseen
from accel_port.kinds import Kind
from accel_port.rules.base import ANY, Context, Edit, Finding, Found, Level, Rule, merged
from accel_port.rules.devices import DEVICE_NAME, device_text, takes_device
from accel_port.rules.runtime import CurrentDevice

_INDEX_NAME = re.compile(r"(^|_)(gpu|gpu_ids?|gpus|rank|local_rank|device_id|gpu_index)$", re.IGNORECASE)


class CudaMethod(Rule, name="cuda-method", levels=ANY):
    """`x.cuda(...)` becomes `x.to(...)` with the accelerator's device."""

    def visit_Attribute(self, node: ast.Attribute, context: Context) -> Found:
        tensor = node.attr == "cuda" and context.kinds.of(node.value) in (Kind.TENSOR, Kind.MODULE)
        if not tensor and context.name(node) not in ("torch.Tensor.cuda", "torch.nn.Module.cuda"):
            return None
        if context.is_called(node):
            return None
        return context.report(node, "the method is passed on, not called", "pass a lambda")

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        func = node.func
        if not isinstance(func, ast.Attribute) or func.attr != "cuda" or context.name(func):
            return None
        context.done.add(func)
        match func.value:
            case ast.Call(func=ast.Name(id="super")):
                return context.report(node, "super().cuda() of a class of the program", "override to()")
            case ast.Name(id="storage"):
                return context.report(node, "a storage has no to(device)", "name the device to load to")
        if context.may_move(func.value):
            return self._moved(node, func, context)
        within = context.module.function(func)
        if within is not None and within.name == "cuda":
            match func.value:
                case ast.Attribute(
                    value=ast.Name(id="self")
                ):  # a method cuda() that moves the object's parts
                    found = self._moved(node, func, context)
                    advice = found.advice or "check that it is a tensor or a module"
                    return replace(found, level=Level.REVIEW, advice=advice) if found.edits else found
        advice = "give the class a method to(), and call that"
        return context.report(node, "a class of these files has its own method cuda()", advice)

    def _moved(self, node: ast.Call, func: ast.Attribute, context: Context) -> Finding:
        module = context.module
        if unseen(node):
            return context.report(node, "arguments that are not seen here", "write .to(device, …)")
        func_end = module.span(func)[1]
        edits = [Edit(func_end - len("cuda"), func_end, "to")]
        if len(node.args) == 2:
            at = module.argument_start(node.args[1], node)
            edits.append(Edit(at, at, "non_blocking="))
        given = argument(node, "device")
        if given is None:
            return context.finding(node, [*edits, context.first_argument(node, context.target.device)])
        if name := keyword(node, "device"):
            edits.append(Edit(*module.keyword_name(name), ""))
        text, kind = device_text(given, context), context.kinds.of(given)
        if text is not None:
            context.done.add(given)
            return context.finding(node, [*edits, *text.edits(context)])
        if kind is Kind.DEVICE:
            return context.finding(node, edits)
        if named(given, DEVICE_NAME) and not self._may_be_none(given, context):
            message = "the argument is named as a device: check that it is none"
            return context.finding(node, edits, Level.REVIEW, message=message)
        if kind in (Kind.INDEX, Kind.NONE) or named(given, _INDEX_NAME):
            known = kind in (Kind.INDEX, Kind.NONE)
            message = "" if known else "the argument is named as an index: check that it is one"
            edits = merged([*edits, *context.named_device(given)])
            return context.finding(node, edits, None if known else Level.REVIEW, message=message)
        advice = "an index: .to(get_accelerator().device_name(x)); a device: .to(x)"
        return context.report(node, ".cuda(x) with an x that may be an index or a device", advice)

    @staticmethod
    def _may_be_none(given: ast.expr, context: Context) -> bool:
        """Return whether a name is None by default: `.cuda(None)` moves to the device, `.to(None)` does not."""
        bindings = context.module.bindings(given) if isinstance(given, ast.Name) else []
        return any(is_constant(binding.value, None) for binding in bindings)


class IntegerDevice(Rule, name="integer-device", levels=(Level.REVIEW, Level.REPORTED)):
    """An integer that stands for a device becomes the device's name."""

    def visit_IfExp(self, node: ast.IfExp, context: Context) -> Found:
        branches = [node.body, node.orelse]
        index = next((branch for branch in branches if context.kinds.of(branch) is Kind.INDEX), None)
        # The text of a CUDA device becomes a device's name in the same run.
        device = any(context.kinds.of(b) is Kind.DEVICE or device_text(b, context) for b in branches)
        text = any(is_constant(branch, "cpu") for branch in branches)
        if index is None or not (device or text) or context.calls(index, "torch.cuda.current_device"):
            return None
        if not device and not self._is_device(node, context):
            return context.report(index, "a choice between an index and the CPU", "an index: leave it")
        return self._named(index, context)

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        given = self._argument(node, context)
        if given is None or given in context.done or not context.uses_torch:
            return None
        if self._becomes_a_name(given, context):
            return None
        kind = context.kinds.of(given)
        if kind is Kind.INDEX and not context.calls(given, "torch.cuda.current_device"):
            return self._named(given, context)
        if kind is Kind.UNKNOWN and named(given, _INDEX_NAME):
            advice = "an index: get_accelerator().device_name(i); a device: leave it"
            return context.report(given, "an argument that may be an integer device", advice)
        return None

    @staticmethod
    def _is_device(choice: ast.expr, context: Context) -> bool:
        """Return whether a choice is given or assigned to what takes a device."""
        call, where = context.receives(choice)
        if call is not None:
            return takes_device(call, where, context) or bool(DEVICE_NAME.search(str(where)))
        match context.parent(choice):
            case ast.Assign(targets=[ast.Name(id=name) as target]):
                given = [context.receives(use) for use in context.module.uses(target)]
                taken = any(call is not None and takes_device(call, where, context) for call, where in given)
                return taken or bool(DEVICE_NAME.search(name))
            case ast.Assign(targets=[ast.Attribute(attr=name)]):
                return bool(DEVICE_NAME.search(name))
        return False

    @staticmethod
    def _named(index: ast.expr, context: Context) -> Finding:
        edits = context.named_device(index)
        found = context.finding(index, edits, Level.REVIEW, "check that it is the local index")
        context.done.discard(index)  # other rules port what it is made of
        return found

    @staticmethod
    def _becomes_a_name(given: ast.expr, context: Context) -> bool:
        """Return whether a variable holds current_device(), and that becomes a device's name."""
        bindings = context.module.bindings(given) if isinstance(given, ast.Name) else []
        return any(
            context.calls(part, "torch.cuda.current_device")
            and CurrentDevice().use(part, context, set()) in ("device", "likely")
            for binding in bindings
            if binding.value is not None
            for part in ast.walk(binding.value)
        )

    @staticmethod
    def _argument(node: ast.Call, context: Context) -> ast.expr | None:
        name = context.name(node.func)
        if name.startswith("torch.cuda.") or name == "torch.Stream":
            return None  # these take an index
        method = node.func.attr if isinstance(node.func, ast.Attribute) and not name else ""
        if node.args and (method == "to" or (name == "torch.device" and len(node.args) == 1)):
            return node.args[0]
        if name.startswith(("torch.", "transformers.")) or method.startswith(("to", "new_")):
            given = keyword(node, "device")
            return given.value if given else None
        return None
