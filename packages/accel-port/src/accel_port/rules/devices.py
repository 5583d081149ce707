# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices: their texts, integers that stand for them, `.cuda()`, `is_cuda`, comparisons and `map_location`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from accel_port.kinds import OPTION_OBJECTS, Kind
from accel_port.rules.base import Context, Edit, Example, Finding, Level, Rule, device_index, is_cuda_text
from accel_port.rules.runtime import CurrentDevice

_DEVICE_NAME = re.compile(r"(^|_)(device|dev|devices)s?($|_)|device$", re.IGNORECASE)
_INDEX_NAME = re.compile(r"(^|_)(gpu|gpu_id|gpus|rank|local_rank|device_id|gpu_index)$", re.IGNORECASE)
_KERNELS = re.compile(
    r"apex|triton|flash|_C\b|_cuda|cuda_|kernel|_ext\b|ext_|fused|xformers|cupy|numba|bitsandbytes"
)
_TAKES_DEVICE_FIRST = [
    "torch.device",
    "torch.Generator",
    "torch.autocast",
    "torch.amp.autocast",
    "torch.amp.GradScaler",
    "torch.set_default_device",
    "torch.get_autocast_dtype",
    "torch.is_autocast_enabled",
    "torch.set_autocast_enabled",
    "torch.get_device_module",
    "torch.distributed.device_mesh.init_device_mesh",
    "torch.distributed.init_device_mesh",
]
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
        start, end = context.module.span(self.node)
        inner, inner_end = context.module.span(self.index)
        return [Edit(start, inner, before), Edit(inner_end, end, after)]

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
    return None


def _template(text: str, mark: str) -> bool:
    return bool(re.fullmatch(r"cuda:%[dsi]" if mark == "%" else r"cuda:\{0?\}", text))


class Ternary(Rule):
    """`"cuda" if torch.cuda.is_available() else "cpu"`, with and without the program's own flag."""

    name = "ternary"
    summary = (
        "The choice between CUDA and the CPU becomes the accelerator's device: the CPU where there is none."
    )
    nodes = (ast.IfExp,)
    examples = (
        Example(
            'import torch\n\ndevice = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\n',
            "import torch\nfrom deepspeed.accelerator import get_accelerator\n\n"
            "device = torch.device(get_accelerator().device_name(0))\n",
            "import torch\n\ndevice = torch.device(torch.device(torch.accelerator.current_accelerator().type, 0)"
            ' if torch.accelerator.is_available() else "cpu")\n',
        ),
        Example(
            'import torch\n\n\ndef pick(args):\n    return "cuda" if torch.cuda.is_available() and not args.no_cuda'
            ' else "cpu"\n',
            "import torch\nfrom deepspeed.accelerator import get_accelerator\n\n\ndef pick(args):\n"
            '    return get_accelerator().device_name() if not args.no_cuda else "cpu"\n',
        ),
    )

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        """See Rule."""
        assert isinstance(node, ast.IfExp)
        device = self._device(node.body, context)
        test, body, cpu = node.test, node.body, node.orelse
        if device is None and isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            device = self._device(node.orelse, context)
            test, body, cpu = test.operand, node.orelse, node.body
        if device is None:
            if (
                context.calls(test, "torch.cuda.is_available")
                and _is(node.body, True)
                and _is(node.orelse, False)
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
            start, end = context.module.span(node)
            inner, inner_end = context.module.span(body)
            self._open(device, context)
            edits = [Edit(start, inner, ""), *device.edits(context), Edit(inner_end, end, "")]
            yield context.finding(self, node, self.summary, [e for e in edits if e.start != e.end or e.text])
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
            return bool(node.args) and _is(node.args[0], "cpu")
        return _is(node, "cpu")

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


class DeviceArgument(Rule):
    """Texts of CUDA devices, where a device is meant."""

    name = "device-text"
    summary = "The text of a CUDA device becomes the accelerator's device."
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.Call)
    examples = (
        Example(
            'import torch\n\n\ndef make(rank):\n    return torch.zeros(2, device=f"cuda:{rank}")\n',
            "import torch\nfrom deepspeed.accelerator import get_accelerator\n\n\ndef make(rank):\n"
            "    return torch.zeros(2, device=get_accelerator().device_name(rank))\n",
        ),
        Example(
            'import torch\n\n\ndef make(i):\n    return torch.device("cuda", i)\n',
            "import torch\nfrom deepspeed.accelerator import get_accelerator\n\n\ndef make(i):\n"
            "    return torch.device(get_accelerator().device_name(i))\n",
            "import torch\n\n\ndef make(i):\n"
            "    return torch.device(torch.accelerator.current_accelerator().type, i)\n",
        ),
    )

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        """See Rule."""
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
            yield context.finding(
                self, node, "the text of a CUDA device, where its use is not seen", advice=advice
            )
            return
        if isinstance(node, ast.JoinedStr):
            context.opened.add(node)
        edits = text.edits(context)
        level = Level.REWRITTEN if where == "device" else Level.REVIEW
        yield context.finding(self, node, self.summary if where == "device" else advice, edits, level, advice)

    def _surgery(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        if isinstance(node, ast.Constant) and node.value == "cuda:":
            call, _ = context.receives(node)
            if call is not None and isinstance(call.func, ast.Attribute):
                yield context.finding(
                    self, node, "text surgery on a device", advice="use torch.device(x).type and .index"
                )

    def _with_index(self, node: ast.Call, context: Context) -> Iterator[Finding]:
        if len(node.args) != 2 or not _is(node.args[0], "cuda"):
            return
        kind, index = node.args
        context.done.update([kind])
        if context.target.is_torch:
            yield context.finding(self, node, self.summary, [context.edit(kind, context.target.device)])
            return
        start, _ = context.module.span(kind)
        inner, end = context.module.span(index)
        if context.calls(index, "torch.cuda.current_device"):
            context.done.update(ast.walk(index))
            edits = [Edit(start, end, context.target.current_device)]
        else:
            before, after = context.target.indexed("\0").split("\0")
            edits = [Edit(start, inner, before), Edit(end, end, after)]
        yield context.finding(self, node, self.summary, edits)

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
                return ("device", "") if _DEVICE_NAME.search(name) else ("reported", "")
            case ast.arguments():
                arg = _parameter(parent, node)
                named = arg is not None and _DEVICE_NAME.search(arg.arg)
                return ("device", "") if named else ("reported", "a default that may be a device")
            case ast.Return():
                function = context.module.function(parent)
                known = function is not None and "device" in function.name.lower()
                return ("device", "") if known else ("review", "a device text is returned")
            case ast.Dict():
                return self._in_dict(parent, node)
            case ast.List() | ast.Tuple() | ast.Set():
                return "reported", "a text that may be a device, or a word that the program compares"
            case ast.FormattedValue() | ast.Expr() | ast.Compare() | ast.Subscript() | ast.MatchValue():
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
        if method in (
            "startswith",
            "strip",
            "lstrip",
            "replace",
            "split",
            "removeprefix",
            "partition",
            "rsplit",
        ):
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
                    if where in (at, arg.arg) and _DEVICE_NAME.search(arg.arg):
                        return "device", ""
        return "reported", "a text that may be a device"

    def _as_name(self, name: ast.Name, context: Context) -> tuple[str, str]:
        if _DEVICE_NAME.search(name.id):
            return "device", ""
        uses = [use for use in context.module.uses(name) if isinstance(use.ctx, ast.Load)]
        found = {self.context_of(use, context)[0] for use in uses}
        if found and found <= {"device", "ignored"} and "device" in found:
            return "device", ""
        return "reported", f"the variable {name.id} may be a device"

    @staticmethod
    def _in_dict(parent: ast.Dict, node: ast.expr) -> tuple[str, str]:
        for key, value in zip(parent.keys, parent.values, strict=True):
            if value is node and isinstance(key, ast.Constant) and _DEVICE_NAME.search(str(key.value)):
                return "review", "a device in a table of settings"
        return "reported", "a key or value of a table"


class CudaMethod(Rule):
    """`.cuda()` of tensors and modules."""

    name = "cuda-method"
    summary = "`x.cuda(...)` becomes `x.to(...)` with the accelerator's device."
    why = "An index becomes a device's name; a device stays; what may be either is left."
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Call, ast.Attribute)
    examples = (
        Example(
            "import torch\n\n\ndef move(x, rank: int):\n    return x.cuda(), x.cuda(rank, non_blocking=True)\n",
            "import torch\nfrom deepspeed.accelerator import get_accelerator\n\n\ndef move(x, rank: int):\n"
            "    return x.to(get_accelerator().device_name()),"
            " x.to(get_accelerator().device_name(rank), non_blocking=True)\n",
        ),
        Example(
            "import torch\n\n\ndef like(x, w):\n    return x.cuda(w.device)\n",
            "import torch\n\n\ndef like(x, w):\n    return x.to(w.device)\n",
            "import torch\n\n\ndef like(x, w):\n    return x.to(w.device)\n",
        ),
    )

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        """See Rule."""
        if isinstance(node, ast.Attribute):
            tensor = node.attr == "cuda" and context.kinds.of(node.value) in (Kind.TENSOR, Kind.MODULE)
            if (tensor or context.name(node) in ("torch.Tensor.cuda", "torch.nn.Module.cuda")) and (
                not context.is_called(node)
            ):
                context.done.add(node)
                yield context.finding(
                    self, node, "the method is passed on, not called", advice="pass a lambda"
                )
            return
        assert isinstance(node, ast.Call)
        func = node.func
        if not isinstance(func, ast.Attribute) or func.attr != "cuda" or context.name(func):
            return
        context.done.add(func)
        above = func.value.func if isinstance(func.value, ast.Call) else None
        if isinstance(above, ast.Name) and above.id == "super":
            yield context.finding(
                self, node, "super().cuda() of a class of the program", advice="override to()"
            )
            return
        if not context.may_move(func.value):
            if self._is_part_of_own(func, context):
                found = self._moved(node, func, context)
                advice = found.advice or "check that it is a tensor or a module"
                yield replace(found, level=Level.REVIEW, advice=advice) if found.edits else found
                return
            advice = "give the class a method to(), and call that"
            yield context.finding(
                self, node, "a class of these files has a method cuda() of its own", advice=advice
            )
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
        named = Edit(func_end - len("cuda"), func_end, "to")
        assert module.text[named.start : func_end] == "cuda"
        assert value_end <= named.start
        keyword = next((k for k in node.keywords if k.arg == "device"), None)
        argument = node.args[0] if node.args else keyword.value if keyword else None
        rest: list[Edit] = []
        if len(node.args) == 2:
            at = module.argument_start(node.args[1], node)
            rest.append(Edit(at, at, "non_blocking="))
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            return context.finding(
                self, node, "arguments that are not seen here", advice="write .to(device, …)"
            )
        if argument is None:
            open_at = module.text.index("(", func_end) + 1
            comma = ", " if node.keywords else ""
            return context.finding(
                self,
                node,
                self.summary,
                [named, Edit(open_at, open_at, context.target.device + comma), *rest],
            )
        if keyword is not None:
            rest.append(Edit(*module.keyword_name(keyword), ""))
        return self._with_argument(node, argument, [named], rest, context)

    def _with_argument(
        self, node: ast.Call, argument: ast.expr, named: list[Edit], rest: list[Edit], context: Context
    ) -> Finding:
        start, end = context.module.span(argument)
        text = device_text(argument, context)
        kind = context.kinds.of(argument)
        if text is not None:
            context.done.add(argument)
            return context.finding(self, node, self.summary, [*named, *rest, *text.edits(context)])
        if context.calls(argument, "torch.cuda.current_device"):
            context.done.update(ast.walk(argument))
            edits = [*named, *rest, context.edit(argument, context.target.current_device)]
            return context.finding(self, node, self.summary, edits)
        if kind is Kind.DEVICE or _named(argument, _DEVICE_NAME):
            level = None if kind is Kind.DEVICE else Level.REVIEW
            message = (
                self.summary if level is None else "the argument is named as a device: check that it is none"
            )
            return context.finding(self, node, message, [*named, *rest], level)
        if kind in (Kind.INDEX, Kind.NONE) or _named(argument, _INDEX_NAME):
            level = None if kind in (Kind.INDEX, Kind.NONE) else Level.REVIEW
            message = (
                self.summary if level is None else "the argument is named as an index: check that it is one"
            )
            before, after = context.target.indexed("\0").split("\0")
            edits = [*named, *rest, Edit(start, start, before), Edit(end, end, after)]
            return context.finding(self, node, message, _merged(edits), level)
        return context.finding(
            self,
            node,
            ".cuda(x) with an x that may be an index or a device",
            advice="an index: .to(get_accelerator().device_name(x)); a device: .to(x)",
        )


class IsCuda(Rule):
    """`x.is_cuda` of tensors."""

    name = "is-cuda"
    summary = "`x.is_cuda` asks whether the tensor is on the accelerator."
    why = "On the CPU accelerator `on_accelerator(x)` is true where `is_cuda` was false."
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Attribute,)
    examples = (
        Example(
            "import torch\n\n\ndef check(x):\n    assert x.is_cuda\n",
            "import torch\nfrom deepspeed.accelerator import get_accelerator\n\n\ndef check(x):\n"
            "    assert get_accelerator().on_accelerator(x)\n",
            'import torch\n\n\ndef check(x):\n    assert x.device.type != "cpu"\n',
        ),
    )

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        """See Rule."""
        assert isinstance(node, ast.Attribute)
        if node.attr != "is_cuda" or isinstance(node.ctx, (ast.Store, ast.Del)) or context.name(node):
            return
        context.done.add(node)
        if "is_cuda" in context.own_names and context.kinds.of(node.value) is not Kind.TENSOR:
            yield context.finding(
                self, node, "a class of these files has an is_cuda of its own", advice="look at it"
            )
            return
        if (guarded := guards_kernel(node, context)) is not None:
            advice = "keep it: on other devices the condition is false"
            yield context.finding(self, node, f"it guards {guarded}, which is CUDA's", advice=advice)
            return
        start, _ = context.module.span(node)
        _, value_end = context.module.span(node.value)
        end = context.module.span(node)[1]
        if not context.target.is_torch and branch_is_harmless(node, context):
            edits = [
                Edit(start, start, f"{context.target.accelerator}.on_accelerator("),
                Edit(value_end, end, ")"),
            ]
            yield context.finding(self, node, self.summary, edits)
            return
        parent = context.parent(node)
        tight = isinstance(parent, (ast.UnaryOp, ast.Compare))
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
            whole = context.module.span(parent)[0]
            edits = [Edit(whole, start, ""), Edit(value_end, end, '.device.type == "cpu"')]
            node = parent
        elif tight:
            edits = [Edit(start, start, "("), Edit(value_end, end, '.device.type != "cpu")')]
        else:
            edits = [Edit(value_end, end, '.device.type != "cpu"')]
        yield context.finding(
            self, node, self.summary, edits, None if context.target.is_torch else Level.REVIEW
        )


class Comparison(Rule):
    """Comparisons of a device with "cuda"."""

    name = "comparison"
    summary = "A device that was compared with CUDA is compared with the accelerator, or with the CPU."
    why = (
        "`== device_name()` is true on the CPU accelerator, too. It is written only where the branch changes nothing"
        ' there; elsewhere `!= "cpu"` is, which is false on the CPU as before.'
    )
    levels = (Level.REVIEW, Level.REPORTED)
    nodes = (ast.Compare, ast.Call)
    examples = (
        Example(
            'import torch\n\n\ndef wait(x):\n    if x.device.type == "cuda":\n        torch.cuda.synchronize()\n',
            "import torch\nfrom deepspeed.accelerator import get_accelerator\n\n\ndef wait(x):\n"
            "    if x.device.type == get_accelerator().device_name():\n        get_accelerator().synchronize()\n",
            'import torch\n\n\ndef wait(x):\n    if x.device.type != "cpu":\n        torch.accelerator.synchronize()\n',
        ),
    )

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        """See Rule."""
        if isinstance(node, ast.Call):
            yield from self._starts_with(node, context)
            return
        assert isinstance(node, ast.Compare)
        if len(node.ops) != 1:
            return
        left, op, right = node.left, node.ops[0], node.comparators[0]
        if isinstance(op, (ast.In, ast.NotIn)):
            if isinstance(right, (ast.List, ast.Tuple, ast.Set)):
                words = [item for item in right.elts if is_cuda_text(item)]
                if words:
                    context.done.update(words)
                    yield context.finding(
                        self, node, "a device is looked up in a list", advice="add the accelerator"
                    )
                return
            text, other = left, right
        else:
            text, other = (left, right) if is_cuda_text(left) else (right, left)
        if not is_cuda_text(text) or not isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)):
            return
        context.done.add(text)
        yield self._compared(node, text, other, op, context)

    def _compared(
        self, node: ast.Compare, text: ast.expr, other: ast.expr, op: ast.cmpop, context: Context
    ) -> Finding:
        if self._is_users_word(other, context):
            return context.finding(
                self,
                node,
                "the user's word is compared",
                advice="change it together with the option that it is from",
            )
        if (guarded := guards_kernel(node, context)) is not None:
            advice = "keep it: the feature stays off on other devices"
            return context.finding(self, node, f"it guards {guarded}, which is CUDA's", advice=advice)
        if isinstance(op, (ast.NotEq, ast.NotIn)):
            return context.finding(
                self, node, "a feature of CUDA is switched off", advice="keep it, or look at it"
            )
        if self._has_sibling(node, context):
            advice = "put the accelerator's branch last, or keep the chain"
            return context.finding(self, node, "one branch for each kind of device", advice=advice)
        if not isinstance(other, (ast.Attribute, ast.Name, ast.Call)):
            return context.finding(self, node, "a comparison with a text of CUDA", advice="look at it")
        if device_index(text):
            return context.finding(self, node, "one device is meant", advice="compare torch.device(x).index")
        if not context.target.is_torch and branch_is_harmless(node, context):
            edits = [context.edit(text, context.target.device)]
        else:
            start, end = context.module.span(node)
            inner, inner_end = context.module.span(other)
            if isinstance(op, ast.In):
                edits = [Edit(start, inner, '"cpu" not in '), Edit(inner_end, end, "")]
            else:
                edits = [Edit(start, inner, ""), Edit(inner_end, end, ' != "cpu"')]
            edits = [edit for edit in edits if edit.start != edit.end or edit.text]
        return context.finding(self, node, self.summary, edits, Level.REVIEW, "check the branch on the CPU")

    def _starts_with(self, node: ast.Call, context: Context) -> Iterator[Finding]:
        func = node.func
        if not isinstance(func, ast.Attribute) or func.attr != "startswith" or len(node.args) != 1:
            return
        if not _is(node.args[0], "cuda"):
            return
        context.done.add(node.args[0])
        if self._is_users_word(func.value, context) or (guards_kernel(node, context) is not None):
            yield context.finding(
                self, node, "the user's word, or a guard of CUDA's kernels", advice="look at it"
            )
            return
        if not context.target.is_torch and branch_is_harmless(node, context):
            edits = [context.edit(node.args[0], context.target.device)]
        else:
            start = context.module.span(node)[0]
            parent = context.parent(node)
            if isinstance(parent, (ast.UnaryOp, ast.Compare)):
                yield context.finding(
                    self, node, "a device's text is looked at", advice="use torch.device(x).type"
                )
                return
            edits = [Edit(start, start, "not "), context.edit(node.args[0], '"cpu"')]
        yield context.finding(self, node, self.summary, edits, Level.REVIEW, "check the branch on the CPU")

    @staticmethod
    def _is_users_word(other: ast.expr, context: Context) -> bool:
        if isinstance(other, ast.Subscript) and context.name(other.value) == "os.environ":
            return True
        if isinstance(other, ast.Call) and context.name(other.func) in ("os.getenv", "os.environ.get"):
            return True
        if not isinstance(other, ast.Attribute) or not isinstance(other.value, ast.Name):
            return False
        return other.value.id in OPTION_OBJECTS

    @staticmethod
    def _has_sibling(node: ast.Compare, context: Context) -> bool:
        statement = context.module.statement(node)
        if not isinstance(statement, ast.If):
            return False
        chain: list[ast.stmt] = [statement]
        above = context.parent(statement)
        while isinstance(above, ast.If) and above.orelse == [chain[-1]]:
            chain.append(above)
            above = context.parent(above)
        below = statement.orelse
        while len(below) == 1 and isinstance(below[0], ast.If):
            chain.append(below[0])
            below = below[0].orelse
        words = {
            part.value
            for link in chain
            if isinstance(link, ast.If)
            for part in ast.walk(link.test)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        return bool(words & {"mps", "xpu", "npu", "hpu", "mlu", "xla", "tpu", "hip", "meta"})


class IntegerDevice(Rule):
    """Integers where a device is expected."""

    name = "integer-device"
    summary = "An integer that stands for a device becomes the device's name."
    why = "torch reads an integer as a device of the accelerator that it was built for: it fails on the CPU and on hpu."
    levels = (Level.REVIEW, Level.REPORTED)
    nodes = (ast.Call,)
    examples = (
        Example(
            "import torch\nimport torch.distributed as dist\n\n\ndef place(x):\n    return x.to(dist.get_rank())\n",
            "import torch\nimport torch.distributed as dist\nfrom deepspeed.accelerator import get_accelerator\n\n\n"
            "def place(x):\n    return x.to(get_accelerator().device_name(dist.get_rank()))\n",
        ),
    )

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        """See Rule."""
        assert isinstance(node, ast.Call)
        argument = self._argument(node, context)
        if argument is None or argument in context.done or not context.uses_torch:
            return
        kind = context.kinds.of(argument)
        if self._becomes_a_name(argument, context):
            return
        if kind is Kind.INDEX and not context.calls(argument, "torch.cuda.current_device"):
            if isinstance(argument, ast.Constant) and isinstance(argument.value, bool):
                return
            start, end = context.module.span(argument)
            before, after = context.target.indexed("\0").split("\0")
            edits = [Edit(start, start, before), Edit(end, end, after)]
            yield context.finding(
                self, argument, self.summary, edits, Level.REVIEW, "check that it is the local index"
            )
        elif kind is Kind.UNKNOWN and _named(argument, _INDEX_NAME):
            advice = "an index: get_accelerator().device_name(i); a device: leave it"
            yield context.finding(self, argument, "an argument that may be an integer device", advice=advice)

    @staticmethod
    def _becomes_a_name(argument: ast.expr, context: Context) -> bool:
        """Return whether a variable holds current_device(), and that becomes a device's name."""
        if not isinstance(argument, ast.Name):
            return False
        values = [binding.value for binding in context.module.bindings(argument)]
        return any(
            value is not None
            and context.calls(value, "torch.cuda.current_device")
            and CurrentDevice().use(value, context, set()) == "device"
            for value in values
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


class MapLocation(Rule):
    """`map_location=` in its several forms."""

    name = "map-location"
    summary = "`map_location` names the accelerator's device."
    why = "A table's keys are tags inside files that were saved on CUDA, so a table becomes the device it leads to."
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Lambda, ast.Dict)
    examples = (
        Example(
            "import torch\n\n\ndef load(p, rank: int):\n"
            '    return torch.load(p, map_location={"cuda:0": f"cuda:{rank}"})\n',
            "import torch\nfrom deepspeed.accelerator import get_accelerator\n\n\ndef load(p, rank: int):\n"
            "    return torch.load(p, map_location=get_accelerator().device_name(rank))\n",
        ),
        Example(
            "import torch\n\n\ndef load(p):\n"
            "    return torch.load(p, map_location=lambda storage, loc: storage.cuda(1))\n",
            "import torch\nfrom deepspeed.accelerator import get_accelerator\n\n\ndef load(p):\n"
            "    return torch.load(p, map_location=get_accelerator().device_name(1))\n",
        ),
    )

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        """See Rule."""
        call, where = context.receives(node)
        if isinstance(node, ast.Dict):
            yield from self._table(node, call, where, context)
            return
        assert isinstance(node, ast.Lambda)
        body = node.body
        if (
            not isinstance(body, ast.Call)
            or not isinstance(body.func, ast.Attribute)
            or body.func.attr != "cuda"
        ):
            return
        if (
            not isinstance(body.func.value, ast.Name)
            or call is None
            or not (where == "map_location" or where == 1)
        ):
            return
        context.done.update([node, body, body.func])
        if not body.args:
            edits = [context.edit(node, context.target.device)]
        else:
            start, end = context.module.span(node)
            inner, inner_end = context.module.span(body.args[0])
            before, after = context.target.indexed("\0").split("\0")
            if context.calls(body.args[0], "torch.cuda.current_device"):
                context.done.update(ast.walk(body.args[0]))
                edits = [context.edit(node, context.target.current_device)]
            else:
                edits = [Edit(start, inner, before), Edit(inner_end, end, after)]
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
        start, end = context.module.span(node)
        inner, inner_end = context.module.span(value)
        if len(node.values) != 1 or (text is None and not _is(value, "cpu")):
            yield context.finding(self, node, "a table of devices", advice="name the one device to load to")
            return
        if text is not None and text.index is not None:
            context.done.difference_update(ast.walk(text.index))
        inside = text.edits(context) if text else []
        edits = _merged([Edit(start, inner, ""), *inside, Edit(inner_end, end, "")])
        yield context.finding(self, node, self.summary, edits, Level.REVIEW, "check that one device is meant")


def branch_is_harmless(node: ast.AST, context: Context) -> bool:
    """Return whether a condition decides nothing that matters on the CPU."""
    parent = context.parent(node)
    if isinstance(parent, ast.Assert):
        return True
    if isinstance(parent, ast.If) and parent.test is node and not parent.orelse:
        return context.harmless(parent.body)
    return False


def guards_kernel(node: ast.AST, context: Context) -> str | None:
    """Return the function of a CUDA library that a condition guards; None if it guards none."""
    below = node
    for parent in context.module.ancestors(node):
        if isinstance(parent, (ast.If, ast.IfExp)) and below is parent.test:
            body = parent.body if isinstance(parent.body, list) else [parent.body]
            for statement in body:
                for part in ast.walk(statement):
                    if isinstance(part, ast.Call):
                        name = context.name(part.func)
                        if name and not name.startswith("torch.") and _KERNELS.search(name):
                            return name
            return None
        if isinstance(parent, ast.stmt):
            return None
        below = parent
    return None


def _named(node: ast.expr, pattern: re.Pattern[str]) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return bool(pattern.search(name))


def _is(node: ast.AST, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value == value and type(node.value) is type(value)


def _merged(edits: list[Edit]) -> list[Edit]:
    """Join edits that touch, in the order of the text."""
    joined: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if joined and joined[-1].end == edit.start:
            joined[-1] = Edit(joined[-1].start, edit.end, joined[-1].text + edit.text)
        else:
            joined.append(edit)
    return joined


def _parameter(arguments: ast.arguments, default: ast.expr) -> ast.arg | None:
    positional = [*arguments.posonlyargs, *arguments.args]
    for arg, value in zip(reversed(positional), reversed(arguments.defaults), strict=False):
        if value is default:
            return arg
    for arg, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword_default is default:
            return arg
    return None
