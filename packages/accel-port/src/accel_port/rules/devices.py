# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Texts of devices: alone, in a choice between CUDA and the CPU, and in `map_location`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from accel_port.rules.base import (
    OTHER_DEVICES,
    Context,
    Edit,
    Finding,
    Level,
    Rule,
    is_constant,
    is_cuda_text,
    merged,
)
from accel_port.syntax import words

DEVICE_NAME = re.compile(r"(^|_)(device|dev|devices)s?($|_)|device$", re.IGNORECASE)
_TAKES_DEVICE_FIRST = words(
    "torch.device torch.Generator torch.autocast torch.amp.autocast torch.amp.GradScaler torch.set_default_device"
    " torch.get_autocast_dtype torch.is_autocast_enabled torch.set_autocast_enabled torch.get_device_module"
    " torch.distributed.device_mesh.init_device_mesh torch.distributed.init_device_mesh"
)
_TEXT_METHODS = words("startswith strip lstrip replace split removeprefix partition rsplit")
_DEVICE_KEYWORDS = frozenset({"device", "map_location", "device_type", "pin_memory_device", "output_device"})


@dataclass(frozen=True)
class DeviceText:
    """An expression that makes the text of a CUDA device. `index` is None for the device without an index."""

    node: ast.expr
    index: ast.expr | None = None
    constant: str = ""

    def edits(self, context: Context) -> list[Edit]:
        """Return the edits that make it the accelerator's device."""
        target = context.target
        if self.index is None:
            text = self._bare(target.indexed(self.constant), context) if self.constant else target.device
            return [context.edit(self.node, text)]
        if context.calls(self.index, "torch.cuda.current_device"):
            context.done.update(ast.walk(self.index))
            return [context.edit(self.node, self._bare(target.current_device, context))]
        before, after = self._bare(target.indexed("\0"), context).split("\0")
        return context.around(self.index, before, after, self.node)

    def _bare(self, text: str, context: Context) -> str:
        """Return a call of torch.device without the call where the text is what torch.device is called with."""
        call, _ = context.receives(self.node)
        made = f"{context.target.torch}.device("
        alone = context.calls(call, "torch.device") and call is not None and not call.keywords
        return text[len(made) : -1] if alone and text.startswith(made) else text


def device_text(node: ast.AST | None, context: Context) -> DeviceText | None:
    """Return the device text that an expression makes; None if it makes none."""
    match node:
        case ast.Constant(value=str(text)) if is_cuda_text(node):
            return DeviceText(node, None, text.partition(":")[2])
        case ast.JoinedStr(
            values=[ast.Constant(value="cuda:"), ast.FormattedValue(value=index, format_spec=None)]
        ):
            return DeviceText(node, index) if context.module.read_exactly(index) else None
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=index) if _template(text, "%"):
            if isinstance(index, ast.Tuple):
                return DeviceText(node, index.elts[0]) if len(index.elts) == 1 else None
            return DeviceText(node, index)
        case ast.BinOp(left=ast.Constant(value="cuda:"), op=ast.Add(), right=index):
            if isinstance(index, ast.Call) and isinstance(index.func, ast.Name) and index.func.id == "str":
                index = index.args[0]
            return DeviceText(node, index)
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format"), args=[index], keywords=[]
        ) if _template(text, "{"):
            return DeviceText(node, index)
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format"),
            args=[],
            keywords=[ast.keyword(arg=str(name), value=index)],
        ) if text == f"cuda:{{{name}}}":
            return DeviceText(node, index)
    return None


def _template(text: str, mark: str) -> bool:
    return bool(re.fullmatch(r"cuda:%[dsi]" if mark == "%" else r"cuda:\{0?\}", text))


class Ternary(Rule[ast.IfExp]):
    """`"cuda" if torch.cuda.is_available() else "cpu"`, with and without the program's own flag."""

    name = "ternary"
    summary = (
        "The choice between CUDA and the CPU becomes the accelerator's device: the CPU where there is none."
    )
    nodes = (ast.IfExp,)

    def find(self, node: ast.IfExp, context: Context) -> Iterator[Finding]:
        device = self._device(node.body, context)
        test, body, cpu = node.test, node.body, node.orelse
        if device is None and isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            device = self._device(node.orelse, context)
            test, body, cpu = test.operand, node.orelse, node.body
        if device is None:
            if (
                context.calls(test, "torch.cuda.is_available")
                and is_constant(node.body, True)
                and is_constant(node.orelse, False)
            ):
                context.done.update(ast.walk(node))
                yield context.finding(
                    self, node, self.summary, [context.edit(node, context.target.has_device)]
                )
            return
        available = any(context.calls(part, "torch.cuda.is_available") for part in ast.walk(test))
        if not available and not context.tests_cuda(test):
            return  # the branches are found as texts of their own
        context.done.update([node, body, *ast.walk(device.node)])
        whole = context.calls(test, "torch.cuda.is_available") and self._is_cpu(cpu, context)
        if whole and not context.target.is_torch:
            context.done.update([*ast.walk(test), *ast.walk(cpu)])
            self._open(device, context)
            edits = [*context.around(body, outer=node), *device.edits(context)]
            yield context.finding(self, node, self.summary, merged(edits))
            return
        self._open(device, context)
        edits = device.edits(context)
        if available and not context.target.is_torch and self._is_cpu(cpu, context):
            edits += self._without_availability(test, context)
        yield context.finding(self, node, self.summary, edits)

    @staticmethod
    def _open(device: DeviceText, context: Context) -> None:
        """Leave the index to the other rules, before the device's own edits take what is theirs."""
        if device.index is not None:
            context.done.difference_update(ast.walk(device.index))
        if isinstance(device.node, ast.JoinedStr):
            context.opened.add(device.node)

    @staticmethod
    def _device(node: ast.expr, context: Context) -> DeviceText | None:
        if context.calls(node, "torch.device"):
            assert isinstance(node, ast.Call)
            if len(node.args) == 1 and not node.keywords:
                return device_text(node.args[0], context)
        return device_text(node, context)

    @staticmethod
    def _is_cpu(node: ast.expr, context: Context) -> bool:
        if context.calls(node, "torch.device"):
            assert isinstance(node, ast.Call)
            return bool(node.args) and is_constant(node.args[0], "cpu")
        return is_constant(node, "cpu")

    @staticmethod
    def _without_availability(test: ast.expr, context: Context) -> list[Edit]:
        """Drop `torch.cuda.is_available()` from `a and b`: the device's name is right on the CPU, too."""
        if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
            return []
        values = test.values
        at = next((i for i, v in enumerate(values) if context.calls(v, "torch.cuda.is_available")), None)
        if at is None:
            return []
        context.done.update(ast.walk(values[at]))
        start, end = context.module.span(values[at])
        if at + 1 < len(values):
            return [Edit(start, context.module.span(values[at + 1])[0], "")]
        return [Edit(context.module.span(values[at - 1])[1], end, "")]


class DeviceArgument(Rule[ast.AST]):
    """Texts of CUDA devices, where a device is meant."""

    name = "device-text"
    summary = "The text of a CUDA device becomes the accelerator's device."
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.Call)

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        if context.calls(node, "torch.device"):
            assert isinstance(node, ast.Call)
            yield from self._with_index(node, context)
            return
        text = device_text(node, context)
        if text is None:
            yield from self._surgery(node, context)
            return
        assert isinstance(node, ast.expr)
        where, advice = self.context_of(node, context)
        if where == "ignored":
            return
        context.done.add(node)
        if where == "reported":
            yield context.report(self, node, "the text of a CUDA device, where its use is not seen", advice)
            return
        if isinstance(node, ast.JoinedStr):
            context.opened.add(node)
        edits = text.edits(context)
        level = Level.REWRITTEN if where == "device" else Level.REVIEW
        yield context.finding(self, node, self.summary if where == "device" else advice, edits, level, advice)

    def _surgery(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        if isinstance(node, ast.Constant) and re.fullmatch(r"cuda:[%{]\S*", str(node.value)):
            yield context.report(
                self, node, "a text that may become a device", "name the accelerator's device"
            )
        elif isinstance(node, ast.Constant) and node.value == "cuda:":
            call, _ = context.receives(node)
            if call is not None and isinstance(call.func, ast.Attribute):
                yield context.report(
                    self, node, "text surgery on a device", "use torch.device(x).type and .index"
                )

    def _with_index(self, node: ast.Call, context: Context) -> Iterator[Finding]:
        if len(node.args) != 2 or not is_constant(node.args[0], "cuda"):
            return
        kind, index = node.args
        context.done.update([kind])
        if context.target.is_torch:
            yield context.finding(self, node, self.summary, [context.edit(kind, context.target.device)])
            return
        gone = Edit(context.module.span(kind)[0], context.module.span(index)[0], "")
        yield context.finding(self, node, self.summary, [gone, *context.named_device(index)])

    def context_of(self, node: ast.expr, context: Context) -> tuple[str, str]:
        """Return device, review, reported or ignored for a text, with what to check."""
        parent = context.parent(node)
        call, where = context.receives(node)
        if call is not None:
            return self._as_argument(call, where, context)
        match parent:
            case ast.IfExp() if parent.test is not node:
                return self.context_of(parent, context)
            case ast.BoolOp():
                return self.context_of(parent, context)
            case ast.Assign(targets=[ast.Name() as name]) | ast.AnnAssign(target=ast.Name() as name):
                return self._as_name(name, context)
            case ast.Assign(targets=[ast.Attribute(attr=name)]):
                return ("device", "") if DEVICE_NAME.search(name) else ("reported", "")
            case ast.arguments():
                arg = _parameter(parent, node)
                named = arg is not None and DEVICE_NAME.search(arg.arg)
                return ("device", "") if named else ("reported", "a default that may be a device")
            case ast.Return():
                function = context.module.function(parent)
                known = function is not None and "device" in function.name.lower()
                return ("device", "") if known else ("review", "a device text is returned")
            case ast.Dict():
                found = self._in_dict(parent, node)
                listed = node in parent.values and self.context_of(parent, context)[0] == "device"
                return ("review", "a table of devices") if listed else found
            case ast.List() | ast.Tuple() if self.context_of(parent, context)[0] == "device" and not any(
                is_constant(item, kind) for item in parent.elts for kind in OTHER_DEVICES
            ):
                return "review", "a list of devices"
            case ast.List() | ast.Tuple() | ast.Set():
                return "reported", "a text that may be a device, or a word that the program compares"
            case ast.MatchValue():
                return "reported", "add a case for the accelerator"
            case ast.FormattedValue() | ast.Expr() | ast.Compare() | ast.Subscript():
                return ("ignored", "") if not isinstance(parent, ast.Subscript) else ("reported", "a key")
        return "reported", ""

    def _as_argument(self, call: ast.Call, where: str | int, context: Context) -> tuple[str, str]:
        name = context.name(call.func)
        method = (
            call.func.attr if isinstance(call.func, ast.Attribute) and not name.startswith("torch") else ""
        )
        if name in _TAKES_DEVICE_FIRST and where == 0:
            return "device", ""
        if name == "torch.load" and where == 1:
            return "device", ""
        if method == "to" and where == 0:
            return "device", ""
        if where in _DEVICE_KEYWORDS:
            outside = name and not name.startswith(("torch.", ".", "accel_", "deepspeed"))
            if outside and not context.local(call.func):
                return "review", f"{name} is not torch's: check that it takes any device"
            return "device", ""
        if method == "add_argument" and where == "default":
            return "review", "the default of an option: check its help text and choices"
        if where == "device_map":
            return (
                "reported",
                "device_map of transformers: give the accelerator's device where it is supported",
            )
        if method in ("get", "getenv") or name in ("os.getenv", "getattr", "os.environ.get"):
            return "reported", "a default for the user's word"
        if method in _TEXT_METHODS:
            return "reported", "text surgery on a device: use torch.device(x).type and .index"
        if isinstance(call.func, ast.Name) and context.local(call.func):
            return self._as_parameter(call, where, context)
        if isinstance(call.func, ast.Name) and call.func.id in ("print", "isinstance", "hasattr", "getattr"):
            return ("ignored", "") if call.func.id in ("print", "hasattr") else ("reported", "")
        return "reported", "a text that may be a device"

    def _as_parameter(self, call: ast.Call, where: str | int, context: Context) -> tuple[str, str]:
        assert isinstance(call.func, ast.Name)
        for binding in context.module.bindings(call.func):
            if isinstance(binding.node, ast.FunctionDef):
                arguments = binding.node.args
                names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                for at, arg in enumerate(names):
                    if where in (at, arg.arg) and DEVICE_NAME.search(arg.arg):
                        return "device", ""
        return "reported", "a text that may be a device"

    def _as_name(self, name: ast.Name, context: Context) -> tuple[str, str]:
        if DEVICE_NAME.search(name.id):
            return "device", ""
        uses = [use for use in context.module.uses(name) if isinstance(use.ctx, ast.Load)]
        found = {self.context_of(use, context)[0] for use in uses}
        if found and found <= {"device", "ignored"} and "device" in found:
            return "device", ""
        return "reported", f"the variable {name.id} may be a device"

    @staticmethod
    def _in_dict(parent: ast.Dict, node: ast.expr) -> tuple[str, str]:
        for key, value in zip(parent.keys, parent.values, strict=True):
            if value is node and isinstance(key, ast.Constant) and DEVICE_NAME.search(str(key.value)):
                return "review", "a device in a table of settings"
        return "reported", "a key or value of a table"


class MapLocation(Rule[ast.AST]):
    """`map_location=` in its several forms."""

    name = "map-location"
    summary = "`map_location` names the accelerator's device."
    why = "A table's keys are tags inside files that were saved on CUDA, so a table becomes the device it leads to."
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Lambda, ast.Dict)

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        call, where = context.receives(node)
        if isinstance(node, ast.Dict):
            yield from self._table(node, call, where, context)
            return
        assert isinstance(node, ast.Lambda)
        match node.body:
            case ast.Call(func=ast.Attribute(value=ast.Name(), attr="cuda"), args=args) if (
                call is not None and where in ("map_location", 1)
            ):
                context.done.update([node, node.body, node.body.func])
                edits = (
                    context.named_device(args[0], node)
                    if args
                    else [context.edit(node, context.target.device)]
                )
                yield context.finding(self, node, self.summary, edits)

    def _table(
        self, node: ast.Dict, call: ast.Call | None, where: str | int, context: Context
    ) -> Iterator[Finding]:
        keys = [device_text(key, context) for key in node.keys]
        loads = where == "map_location" or (call is not None and context.name(call.func) == "torch.load")
        assigned = isinstance(parent := context.parent(node), ast.Assign) and any(
            isinstance(t, ast.Name) and "map_location" in t.id for t in parent.targets
        )
        if not keys or None in keys or not (loads or assigned):
            return
        context.done.update(part for part in ast.walk(node))
        value = node.values[0]
        text = device_text(value, context)
        if len(node.values) != 1 or (text is None and not is_constant(value, "cpu")):
            yield context.report(self, node, "a table of devices", "name the one device to load to")
            return
        if text is not None and text.index is not None:
            context.done.difference_update(ast.walk(text.index))
        edits = merged([*context.around(value, outer=node), *(text.edits(context) if text else [])])
        yield context.finding(self, node, self.summary, edits, Level.REVIEW, "check that one device is meant")


def _parameter(arguments: ast.arguments, default: ast.expr) -> ast.arg | None:
    positional = [*arguments.posonlyargs, *arguments.args]
    for arg, value in zip(reversed(positional), reversed(arguments.defaults), strict=False):
        if value is default:
            return arg
    for arg, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword_default is default:
            return arg
    return None
