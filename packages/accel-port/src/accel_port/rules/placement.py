# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where tensors and modules are put: `.cuda()`, and integers that stand for devices."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from accel_port.kinds import Kind
from accel_port.rules.base import (
    Context,
    Edit,
    Finding,
    Level,
    Rule,
    merged,
    named,
)
from accel_port.rules.devices import DEVICE_NAME, device_text
from accel_port.rules.runtime import CurrentDevice

_INDEX_NAME = re.compile(r"(^|_)(gpu|gpu_ids?|gpus|rank|local_rank|device_id|gpu_index)$", re.IGNORECASE)


class CudaMethod(Rule[ast.AST]):
    """`.cuda()` of tensors and modules."""

    name = "cuda-method"
    summary = "`x.cuda(...)` becomes `x.to(...)` with the accelerator's device."
    why = "An index becomes a device's name; a device stays; what may be either is left."
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Call, ast.Attribute)

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        if isinstance(node, ast.Attribute):
            tensor = node.attr == "cuda" and context.kinds.of(node.value) in (Kind.TENSOR, Kind.MODULE)
            if (tensor or context.name(node) in ("torch.Tensor.cuda", "torch.nn.Module.cuda")) and (
                not context.is_called(node)
            ):
                context.done.add(node)
                yield context.report(self, node, "the method is passed on, not called", "pass a lambda")
            return
        assert isinstance(node, ast.Call)
        func = node.func
        if not isinstance(func, ast.Attribute) or func.attr != "cuda" or context.name(func):
            return
        context.done.add(func)
        above = func.value.func if isinstance(func.value, ast.Call) else None
        if isinstance(above, ast.Name) and above.id == "super":
            yield context.report(self, node, "super().cuda() of a class of the program", "override to()")
            return
        if isinstance(func.value, ast.Name) and func.value.id == "storage":
            yield context.report(self, node, "a storage has no to(device)", "name the device to load to")
            return
        if not context.may_move(func.value):
            if self._is_part_of_own(func, context):
                found = self._moved(node, func, context)
                advice = found.advice or "check that it is a tensor or a module"
                yield replace(found, level=Level.REVIEW, advice=advice) if found.edits else found
                return
            advice = "give the class a method to(), and call that"
            yield context.report(self, node, "a class of these files has a method cuda() of its own", advice)
            return
        yield self._moved(node, func, context)

    @staticmethod
    def _is_part_of_own(func: ast.Attribute, context: Context) -> bool:
        """Return whether it is `self.x.cuda()` in a method that is called cuda itself: it moves the object's parts."""
        function = context.module.function(func)
        own = function is not None and function.name == "cuda"
        part = func.value
        return (
            own
            and isinstance(part, ast.Attribute)
            and isinstance(part.value, ast.Name)
            and part.value.id == "self"
        )

    def _moved(self, node: ast.Call, func: ast.Attribute, context: Context) -> Finding:
        module = context.module
        _, value_end = module.span(func.value)
        _, func_end = module.span(func)
        method = Edit(func_end - len("cuda"), func_end, "to")
        assert module.text[method.start : func_end] == "cuda"
        assert value_end <= method.start
        keyword = next((k for k in node.keywords if k.arg == "device"), None)
        argument = node.args[0] if node.args else keyword.value if keyword else None
        rest: list[Edit] = []
        if len(node.args) == 2:
            at = module.argument_start(node.args[1], node)
            rest.append(Edit(at, at, "non_blocking="))
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            return context.report(self, node, "arguments that are not seen here", "write .to(device, …)")
        if argument is None:
            edits = [method, context.first_argument(node, context.target.device), *rest]
            return context.finding(self, node, self.summary, edits)
        if keyword is not None:
            rest.append(Edit(*module.keyword_name(keyword), ""))
        return self._with_argument(node, argument, [method], rest, context)

    def _with_argument(
        self, node: ast.Call, argument: ast.expr, method: list[Edit], rest: list[Edit], context: Context
    ) -> Finding:
        text = device_text(argument, context)
        kind = context.kinds.of(argument)
        if text is not None:
            context.done.add(argument)
            return context.finding(self, node, self.summary, [*method, *rest, *text.edits(context)])
        if kind is Kind.DEVICE or named(argument, DEVICE_NAME):
            level = None if kind is Kind.DEVICE else Level.REVIEW
            message = (
                self.summary if level is None else "the argument is named as a device: check that it is none"
            )
            return context.finding(self, node, message, [*method, *rest], level)
        if kind in (Kind.INDEX, Kind.NONE) or named(argument, _INDEX_NAME):
            level = None if kind in (Kind.INDEX, Kind.NONE) else Level.REVIEW
            message = (
                self.summary if level is None else "the argument is named as an index: check that it is one"
            )
            edits = merged([*method, *rest, *context.named_device(argument)])
            return context.finding(self, node, message, edits, level)
        return context.report(
            self,
            node,
            ".cuda(x) with an x that may be an index or a device",
            "an index: .to(get_accelerator().device_name(x)); a device: .to(x)",
        )


class IntegerDevice(Rule[ast.Call]):
    """Integers where a device is expected."""

    name = "integer-device"
    summary = "An integer that stands for a device becomes the device's name."
    why = "torch reads an integer as a device of the accelerator that it was built for: it fails on the CPU and on hpu."
    levels = (Level.REVIEW, Level.REPORTED)
    nodes = (ast.Call,)

    def find(self, node: ast.Call, context: Context) -> Iterator[Finding]:
        argument = self._argument(node, context)
        if argument is None or argument in context.done or not context.uses_torch:
            return
        kind = context.kinds.of(argument)
        if self._becomes_a_name(argument, context):
            return
        if kind is Kind.INDEX and not context.calls(argument, "torch.cuda.current_device"):
            if isinstance(argument, ast.Constant) and isinstance(argument.value, bool):
                return
            advice = "check that it is the local index"
            edits = context.named_device(argument)
            yield context.finding(self, argument, self.summary, edits, Level.REVIEW, advice)
        elif kind is Kind.UNKNOWN and named(argument, _INDEX_NAME):
            advice = "an index: get_accelerator().device_name(i); a device: leave it"
            yield context.report(self, argument, "an argument that may be an integer device", advice)

    @staticmethod
    def _becomes_a_name(argument: ast.expr, context: Context) -> bool:
        """Return whether a variable holds current_device(), and that becomes a device's name."""
        if not isinstance(argument, ast.Name):
            return False
        values = [binding.value for binding in context.module.bindings(argument) if binding.value is not None]
        return any(
            context.calls(part, "torch.cuda.current_device")
            and CurrentDevice().use(part, context, set()) == "device"
            for value in values
            for part in ast.walk(value)
        )

    @staticmethod
    def _argument(node: ast.Call, context: Context) -> ast.expr | None:
        name = context.name(node.func)
        if name.startswith("torch.cuda.") or name == "torch.Stream":
            return None  # these take an index
        method = node.func.attr if isinstance(node.func, ast.Attribute) and not name else ""
        if method == "to" and node.args:
            return node.args[0]
        if name == "torch.device" and len(node.args) == 1:
            return node.args[0]
        if name.startswith(("torch.", "transformers.")) or method.startswith(("to", "new_")):
            keyword = next((k for k in node.keywords if k.arg == "device"), None)
            return keyword.value if keyword else None
        return None
