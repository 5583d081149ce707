# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Texts of devices: alone, in a choice between CUDA and the CPU, and in `map_location`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from accel_port.expressions import OTHER_DEVICES, is_constant, is_cuda_text, parameters, words
from accel_port.rules.base import ANY, Context, Edit, Found, Level, Rule, merged
from accel_port.targets import PortTarget

DEVICE_NAME = re.compile(r"(^|_)(device|dev|devices)s?($|_)|device$", re.IGNORECASE)
_TAKES_DEVICE_FIRST = words(
    "torch.device torch.Generator torch.autocast torch.amp.autocast torch.amp.GradScaler torch.set_default_device"
    " torch.get_autocast_dtype torch.is_autocast_enabled torch.set_autocast_enabled torch.get_device_module"
    " torch.distributed.device_mesh.init_device_mesh torch.distributed.init_device_mesh"
)
_TEXT_METHODS = words("startswith strip lstrip replace split removeprefix partition rsplit")
_DEVICE_KEYWORDS = words("device map_location device_type pin_memory_device output_device")


@dataclass(frozen=True)
class DeviceText:
    """An expression that makes the text of a CUDA device. `index` is None for the device without an index."""

    node: ast.expr
    index: ast.expr | None = None
    constant: str = ""

    def edits(self, context: Context) -> list[Edit]:
        """Return the edits that make it the accelerator's device."""
        target = _target(self.node, context)
        if self.index is None:
            text = self._bare(target.indexed(self.constant), context) if self.constant else target.device
            tight = " if " in text and not self.constant and not context.stands_alone(self.node)
            return [context.edit(self.node, f"({text})" if tight else text)]
        if context.calls(self.index, "torch.cuda.current_device"):
            context.take(self.index)
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
        case ast.BinOp(left=ast.Constant(value="cuda:%d" | "cuda:%s" | "cuda:%i"), op=ast.Mod(), right=index):
            if isinstance(index, ast.Tuple):
                return DeviceText(node, index.elts[0]) if len(index.elts) == 1 else None
            return DeviceText(node, index)
        case ast.BinOp(left=ast.Constant(value="cuda:"), op=ast.Add(), right=index):
            if isinstance(index, ast.Call) and isinstance(index.func, ast.Name) and index.func.id == "str":
                index = index.args[0]
            return DeviceText(node, index)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            match node:
                case ast.Call(args=[index], keywords=[]) if text in ("cuda:{}", "cuda:{0}"):
                    return DeviceText(node, index)
                case ast.Call(args=[], keywords=[ast.keyword(arg=name, value=index)]):
                    return DeviceText(node, index) if text == f"cuda:{{{name}}}" else None
    return None


def _target(node: ast.expr, context: Context) -> PortTarget:
    """Return the target, which for torch chooses the CPU where a device may be made without one."""
    unsure = context.may_be_imported_on_cpu and not context.guarded(node)
    anywhere = context.target.is_torch and unsure and not _fails_on_cpu(node, context)
    return context.target.anywhere if anywhere else context.target


def _fails_on_cpu(node: ast.AST, context: Context) -> bool:
    """Return whether the text of a CUDA device is used where there must be one."""
    call, where = context.receives(node)
    if call is None:
        return False
    name = context.name(call.func)
    if name == "torch.device":
        return _fails_on_cpu(call, context)
    method = not name and isinstance(call.func, ast.Attribute)
    return (where == "device" and (method or name.startswith("torch."))) or (where == 0 and method)


def takes_device(call: ast.Call, where: str | int, context: Context) -> bool:
    """Return whether the argument at a position of a call is a device."""
    name = context.name(call.func)
    moves = not name and isinstance(call.func, ast.Attribute) and call.func.attr == "to"
    first = where == 0 and (moves or name in _TAKES_DEVICE_FIRST)
    return first or (name, where) in (("torch.load", 1), ("torch.device", "type"))


class Ternary(Rule, name="ternary", levels=(Level.REWRITTEN, Level.REPORTED)):
    """The choice between CUDA and the CPU becomes the accelerator's device: the CPU where there is none."""

    def visit_IfExp(self, node: ast.IfExp, context: Context) -> Found:
        test, body, cpu = node.test, node.body, node.orelse
        device = self._device(body, context)
        if device is None and context.denies_cuda(test):
            test, body, cpu = test.operand if isinstance(test, ast.UnaryOp) else test, cpu, body
            device = self._device(body, context)
        asked = context.calls(test, "torch.cuda.is_available")
        if device is None:
            if asked and is_constant(node.body, True) and is_constant(node.orelse, False):
                context.take(node)
                return context.rewrite(node, context.target.has_device)
            return None
        if self._is_word(node, context):
            context.take(node)
            advice = (
                "it is a key of the program's, or a word of another library: choose the accelerator's there"
            )
            return context.report(node, "the choice is a word, not a device", advice)
        available = any(context.calls(part, "torch.cuda.is_available") for part in ast.walk(test))
        if not available and not context.tests_cuda(test) and not context.denies_cuda(test):
            return None  # the branches are found as texts of their own
        collapses = not context.target.is_torch and self._is_cpu(cpu, context)
        context.done.add(body)
        context.take(device.node)
        if asked and collapses:
            context.take(test, cpu)
        # The index is left to the other rules, before the device's own edits take what is theirs.
        if device.index is not None:
            context.done.difference_update(ast.walk(device.index))
        if isinstance(device.node, ast.JoinedStr):
            context.opened.add(device.node)
        edits = device.edits(context)
        if asked and collapses:
            return context.finding(node, merged([*context.around(body, outer=node), *edits]))
        if available and collapses:
            edits += self._without_availability(test, context)
        return context.finding(node, edits)

    @staticmethod
    def _is_word(node: ast.expr, context: Context) -> bool:
        call, where = context.receives(node)
        asked = call is not None and where == 0 and getattr(call.func, "attr", "") == "get"
        key = asked or isinstance(context.parent(node), ast.Subscript)
        return key or where in ("accelerator", "device_map")

    @staticmethod
    def _device(node: ast.expr, context: Context) -> DeviceText | None:
        match node:
            case ast.Call(args=[only], keywords=[]) if context.calls(node, "torch.device"):
                return device_text(only, context)
        return device_text(node, context)

    @staticmethod
    def _is_cpu(node: ast.expr, context: Context) -> bool:
        if isinstance(node, ast.Call) and context.calls(node, "torch.device"):
            return bool(node.args) and is_constant(node.args[0], "cpu")
        return is_constant(node, "cpu")

    @staticmethod
    def _without_availability(test: ast.expr, context: Context) -> list[Edit]:
        """Drop `torch.cuda.is_available()` from `a and b`: the device's name is right on the CPU, too."""
        values = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else []
        at = next((i for i, v in enumerate(values) if context.calls(v, "torch.cuda.is_available")), None)
        if at is None:
            return []
        context.take(values[at])
        start, end = context.module.span(values[at])
        if at + 1 < len(values):
            return [Edit(start, context.module.span(values[at + 1])[0], "")]
        return [Edit(context.module.span(values[at - 1])[1], end, "")]


#: What a text is, and what to check: device, review, reported or ignored.
_Use = tuple[str, str]
_DEVICE, _IGNORED, _LEFT = ("device", ""), ("ignored", ""), ("reported", "")
_MAYBE = ("reported", "a text that may be a device")


class DeviceArgument(Rule, name="device-text", levels=ANY):
    """The text of a CUDA device becomes the accelerator's device."""

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        made = context.calls(node, "torch.device")
        return self._with_index(node, context) if made else self._text(node, context)

    def _text(self, node: ast.expr, context: Context) -> Found:
        text = device_text(node, context)
        if text is None:
            return None
        if isinstance(node, ast.BinOp):
            context.done.add(node.left)  # "cuda:%d", which is part of this text
        where, advice = self.context_of(node, context)
        if where == "ignored":
            return None
        if where == "reported":
            return context.report(node, "the text of a CUDA device, where its use is not seen", advice)
        if isinstance(node, ast.JoinedStr):
            context.opened.add(node)
        level = Level.REWRITTEN if where == "device" else Level.REVIEW
        return context.finding(node, text.edits(context), level, advice, advice)

    visit_JoinedStr = visit_BinOp = _text

    def visit_Constant(self, node: ast.Constant, context: Context) -> Found:
        if re.fullmatch(r"cuda:[%{]\S*", str(node.value)):
            return context.report(node, "a text that may become a device", "name the accelerator's device")
        call, _ = context.receives(node)
        if node.value == "cuda:" and call is not None and isinstance(call.func, ast.Attribute):
            return context.report(node, "text surgery on a device", "use torch.device(x).type and .index")
        return self._text(node, context)

    def _with_index(self, node: ast.Call, context: Context) -> Found:
        if len(node.args) != 2 or not is_constant(node.args[0], "cuda"):
            return None
        kind, index = node.args
        context.done.add(kind)
        if context.target.is_torch:
            return context.finding(node, [context.edit(kind, _target(node, context).device)])
        gone = Edit(context.module.span(kind)[0], context.module.span(index)[0], "")
        return context.finding(node, [gone, *context.named_device(index)])

    def context_of(self, node: ast.expr, context: Context) -> _Use:
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
            case ast.ListComp() if parent.elt is node and self.context_of(parent, context) == _DEVICE:
                return "review", "a list of devices"
            case ast.Assign(targets=[ast.Name() as name]) | ast.AnnAssign(target=ast.Name() as name):
                return self._as_name(name, context)
            case ast.Assign(targets=[ast.Attribute(attr=name)]):
                return _DEVICE if DEVICE_NAME.search(name) else _LEFT
            case ast.arguments():
                of = next((arg for arg, default in parameters(parent) if default is node), None)
                named = of is not None and DEVICE_NAME.search(of.arg)
                return _DEVICE if named else ("reported", "a default that may be a device")
            case ast.Return():
                function = context.module.function(parent)
                known = function is not None and "device" in function.name.lower()
                return _DEVICE if known else ("review", "a device text is returned")
            case ast.Dict(keys=keys, values=values):
                if node in values and self.context_of(parent, context) == _DEVICE:
                    return "review", "a table of devices"
                key = keys[values.index(node)] if node in values else None
                if isinstance(key, ast.Constant) and DEVICE_NAME.search(str(key.value)):
                    return "review", "a device in a table of settings"
                return "reported", "a key or value of a table"
            case ast.List() | ast.Tuple() if self.context_of(parent, context) == _DEVICE and not any(
                is_constant(item, kind) for item in parent.elts for kind in OTHER_DEVICES
            ):
                return "review", "a list of devices"
            case ast.List() | ast.Tuple() | ast.Set():
                return "reported", "a text that may be a device, or a word that the program compares"
            case ast.MatchValue():
                return "reported", "add a case for the accelerator"
            case ast.Subscript():
                return "reported", "a key"
            case ast.FormattedValue() | ast.Expr() | ast.Compare():
                return _IGNORED
        return _LEFT

    def _as_argument(self, call: ast.Call, where: str | int, context: Context) -> _Use:
        name = context.name(call.func)
        attribute = isinstance(call.func, ast.Attribute) and not name.startswith("torch")
        method = call.func.attr if attribute and isinstance(call.func, ast.Attribute) else ""
        if takes_device(call, where, context):
            return _DEVICE
        if where in _DEVICE_KEYWORDS:
            outside = name and not name.startswith(("torch.", ".", "accel_", "deepspeed"))
            if outside and not context.local(call.func):
                return "review", f"{name} is not torch's: check that it takes any device"
            return _DEVICE
        if method == "add_argument" and where == "default":
            return "review", "the default of an option: check its help text and choices"
        if where == "device_map":
            advice = "device_map of transformers: give the accelerator's device where it is supported"
            return "reported", advice
        if method in ("get", "getenv") or name in ("os.getenv", "getattr", "os.environ.get"):
            return "reported", "a default for the user's word"
        if method in _TEXT_METHODS:
            return "reported", "text surgery on a device: use torch.device(x).type and .index"
        if isinstance(call.func, ast.Name):
            if context.local(call.func):
                given = context.module.parameter(call, where)
                return _DEVICE if given is not None and DEVICE_NAME.search(given.arg) else _MAYBE
            if call.func.id in ("print", "hasattr"):
                return _IGNORED
            if call.func.id in ("isinstance", "getattr"):
                return _LEFT
        return _MAYBE

    def _as_name(self, name: ast.Name, context: Context) -> _Use:
        if DEVICE_NAME.search(name.id):
            return _DEVICE
        uses = [use for use in context.module.uses(name) if isinstance(use.ctx, ast.Load)]
        found = {self.context_of(use, context)[0] for use in uses}
        if found <= {"device", "ignored"} and "device" in found:
            return _DEVICE
        return "reported", f"the variable {name.id} may be a device"


class MapLocation(Rule, name="map-location", levels=ANY):
    """`map_location` names the accelerator's device."""

    def visit_Lambda(self, node: ast.Lambda, context: Context) -> Found:
        call, where = context.receives(context.choice(node))
        loads = call is not None and where in ("map_location", 1)
        match node.body:
            case ast.Call(func=ast.Attribute(value=ast.Name(), attr="cuda") as func, args=args):
                if loads:
                    context.done.update([node.body, func])
                    if args:
                        return context.finding(node, context.named_device(args[0], node))
                    return context.rewrite(node, context.target.device)
        if loads and any(getattr(part, "attr", "") == "cuda" for part in ast.walk(node.body)):
            context.take(node)
            return context.report(
                node, "a storage is moved, which has no to(device)", "name the device to load to"
            )
        return None

    def visit_Dict(self, node: ast.Dict, context: Context) -> Found:
        choice = context.choice(node)
        call, where = context.receives(choice)
        keys = [device_text(key, context) for key in node.keys]
        loads = where == "map_location" or (call is not None and context.name(call.func) == "torch.load")
        assigned = isinstance(parent := context.parent(choice), ast.Assign) and any(
            isinstance(t, ast.Name) and "map_location" in t.id for t in parent.targets
        )
        if not keys or None in keys or not (loads or assigned):
            return None
        context.take(node)
        value = node.values[0]
        text = device_text(value, context)
        if len(node.values) != 1 or (text is None and not is_constant(value, "cpu")):
            return context.report(node, "a table of devices", "name the one device to load to")
        if text is not None and text.index is not None:
            context.done.difference_update(ast.walk(text.index))
        edits = merged([*context.around(value, outer=node), *(text.edits(context) if text else [])])
        return context.finding(node, edits, Level.REVIEW, "check that one device is meant")
