# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Functions of torch.cuda: availability, the current device, seeds, memory, and those without a counterpart."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from accel_port.expressions import PRIMARY, argument, is_constant, is_cuda_text, keyword, named, words
from accel_port.kinds import Kind
from accel_port.rules.base import ANY, Context, Edit, Finding, Found, Level, Rule, applied
from accel_port.rules.comparisons import branch_is_harmless, launches_kernel
from accel_port.rules.devices import DEVICE_NAME, device_text, takes_device
from accel_port.targets import RAISE_WITHOUT_DEVICE


class Availability(Rule, name="is-available"):
    """`torch.cuda.is_available()` becomes a condition that is still false on the CPU."""

    def visit_Attribute(self, node: ast.Attribute, context: Context) -> Found:
        if context.cuda_name(node) != "is_available" or context.is_called(node):
            return None
        return context.report(node, "is_available is passed on, not called", "call it there")

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        if not context.calls(node, "torch.cuda.is_available"):
            return None
        context.done.add(node.func)
        target = context.target
        if (link := cascade(node, context)) is not None:
            context.take(*link.body)
            advice = "put a branch for get_accelerator() in its place, or keep the program's own choice"
            return context.report(node, "the program chooses between kinds of devices itself", advice)
        if self._guards_graphs(node, context):
            advice = "keep it: graphs are off on other devices, and the work is run itself"
            return context.report(node, "it guards CUDA graphs, which are left", advice)
        if self._guards_cuda_alone(node, context):
            advice = "keep it: on other devices the condition is false"
            return context.report(node, "it guards functions that only CUDA has", advice)
        text = target.has_device
        if not target.is_torch and branch_is_harmless(node, context):
            text = f"{target.accelerator}.is_available()"
        parent = context.parent(node)
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not) and "!=" in text:
            return context.rewrite(parent, text.replace("!=", "=="))
        tight = isinstance(parent, (ast.Compare, ast.UnaryOp, ast.Attribute, ast.BinOp, ast.Starred))
        return context.rewrite(node, f"({text})" if tight and " " in text else text)

    @staticmethod
    def _guards_graphs(node: ast.Call, context: Context) -> bool:
        statement = context.module.statement(node)
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = [getattr(target, "id", getattr(target, "attr", "")) for target in targets]
            return any("graph" in name.lower() for name in names) and not isinstance(
                statement.value, ast.IfExp
            )
        if isinstance(statement, ast.If) and any(part is node for part in ast.walk(statement.test)):
            graphs = ("CUDAGraph", "graph", "make_graphed_callables")
            return any(context.cuda_name(part) in graphs for part in _parts(statement.body))
        return False

    @staticmethod
    def _guards_cuda_alone(node: ast.Call, context: Context) -> bool:
        """Return whether everything of CUDA that is evaluated behind the condition is left: it would fail elsewhere."""
        behind: list[ast.AST] = []
        below: ast.AST = node
        for above in context.module.ancestors(node):
            if isinstance(above, ast.BoolOp) and isinstance(above.op, ast.And):
                behind += [
                    value for value in above.values if value is not below and value not in context.done
                ]
                below = above
                continue
            if isinstance(above, ast.If | ast.IfExp) and above.test is below:
                behind += above.body if isinstance(above, ast.If) else [above.body]
            break
        parts = _parts(behind)
        if any(isinstance(p, ast.ImportFrom) and (p.module or "").startswith("torch.cuda") for p in parts):
            return True
        names = {name for part in parts if (name := context.cuda_name(part)) and context.is_called(part)}
        moves = any(
            is_cuda_text(part) or (getattr(part, "attr", "") in ("cuda", "to") and not context.name(part))
            for part in parts
        )
        total = any(getattr(part, "attr", "") == "total_memory" for part in parts)
        alone = CUDA_ALONE - {"get_device_properties"} if total else CUDA_ALONE
        asked = context.target.is_torch and any(name.startswith("get_device_") for name in names)
        return bool(names) and names <= alone and not moves and not asked


def _parts(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    return [part for node in nodes for part in ast.walk(node)]


def cascade(node: ast.AST, context: Context) -> ast.If | None:
    """Return the branch of an if-chain for CUDA that comes after branches for other kinds of devices."""
    statement = context.module.statement(node)
    if not isinstance(statement, ast.If) or not any(part is node for part in ast.walk(statement.test)):
        return None
    below: ast.AST = statement
    above = context.parent(statement)
    while isinstance(above, ast.If) and above.orelse == [below]:
        if _OTHER_DEVICE.search(context.module.code(above.test)):
            return statement
        below, above = above, context.parent(above)
    return None


_OTHER_DEVICE = re.compile(r"(?<![a-z])(mps|xpu|npu|hpu|mlu|sdaa|supa|musa|xla|tpu|neuron)(?![a-z])")


class CurrentDevice(Rule, name="current-device", levels=ANY):
    """`torch.cuda.current_device()` becomes a device's name where it is used as a device, an index elsewhere."""

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        if not context.calls(node, "torch.cuda.current_device"):
            return None
        context.done.add(node.func)
        index = f"{context.target.function('current_device')}()"
        match self.use(node, context, set()):
            case "device":
                return context.rewrite(node, context.target.current_device)
            case "likely":
                advice = "check that what is not seen here uses it as a device, too"
                return context.rewrite(node, context.target.current_device, Level.REVIEW, advice)
            case "index" | "either":
                return context.rewrite(node, index)
            case "both":
                message = "current_device() is used as a device and as an index: it stays an index"
                advice = "check that each use as a device has become device_name(index)"
                return context.rewrite(node, index, Level.REVIEW, advice, message)
        advice = "write current_device_name() where a device is meant and current_device() where an index is"
        return context.report(node, "current_device() is used out of sight", advice)

    def use(self, node: ast.AST, context: Context, seen: set[ast.AST]) -> str:
        """Return how a value is used: device, likely (a device), index, both, either, or empty: that is not known."""
        if node in seen:
            return "either"
        seen.add(node)
        parent = context.parent(node)
        call, where = context.receives(node)
        if call is not None:
            return self._use_as_argument(call, where, context, seen)
        match parent:
            case ast.Subscript() if parent.slice is node:
                return "index"
            case ast.BinOp() | ast.UnaryOp() | ast.FormattedValue() | ast.AugAssign() | ast.Expr():
                return "index"
            case ast.Compare(left=left, comparators=others):
                rest = [item for item in [left, *others] if item is not node]
                kinds = {context.kinds.of(item) for item in rest}
                if kinds == {Kind.NONE}:
                    return "either"
                return "device" if kinds & {Kind.DEVICE, Kind.TEXT} else "index"
            case ast.Assign(targets=[ast.Name() as name]) | ast.AnnAssign(target=ast.Name() as name):
                found = self._common(
                    context.module.uses(name), context, seen, bool(DEVICE_NAME.search(name.id))
                )
                return "" if found == "both" and len(context.module.bindings(name)) > 1 else found
            case ast.Assign(targets=[ast.Attribute(attr=name) as target]) if DEVICE_NAME.search(name):
                code = context.module.code(target)
                same = [n for n in context.module.nodes if getattr(n, "attr", "") == name]
                read = [n for n in same if not isinstance(getattr(n, "ctx", None), ast.Store)]
                # `args.device` is `self.args.device` elsewhere, and may be any object's where it is an index.
                its = [n for n in read if f".{context.module.code(n)}".endswith(f".{code}")]
                places = {context.parent(n) for n in read if n not in its}
                if any(isinstance(p, ast.Subscript) and p.slice in read for p in places):
                    return ""
                return "" if {self.use(n, context, seen) for n in its} & {"index", "both"} else "likely"
            case ast.IfExp(body=body, orelse=orelse):
                other = context.kinds.of(orelse if node is body else body)
                return _LIKE.get(other) or self.use(parent, context, seen)
            case ast.NamedExpr(target=name):
                found = self._common(context.module.uses(name), context, seen)
                return found if found == self.use(parent, context, seen) else ""
            case ast.BoolOp():
                return self.use(parent, context, seen)
            case ast.List() | ast.Tuple():
                inner, keyword = context.receives(parent)
                if inner is not None and keyword in ("device_ids", "devices"):
                    return "index"
            case ast.Dict(keys=keys, values=values) if node in values:
                if not is_constant(keys[values.index(node)], "device"):
                    return ""
                subscripts = (n for n in context.module.nodes if isinstance(n, ast.Subscript))
                read = [
                    n for n in subscripts if is_constant(n.slice, "device") and isinstance(n.ctx, ast.Load)
                ]
                return "" if {self.use(n, context, seen) for n in read} & {"index", "both"} else "likely"
        return ""

    def _use_as_argument(self, call: ast.Call, where: str | int, context: Context, seen: set[ast.AST]) -> str:
        name = context.name(call.func)
        method = call.func.attr if isinstance(call.func, ast.Attribute) and not name else ""
        if name == "torch.cuda.Stream":
            return "either"
        if name.startswith("torch.cuda."):
            return "index"
        moves = method == "cuda" and where == 0
        if moves or where in ("device", "map_location") or takes_device(call, where, context):
            return "device"
        if name == "torch.device" or "nvml" in (name + method).lower() or where in _INDICES:
            return "index"
        if method in ("info", "debug", "warning", "format"):
            return "index"
        if not isinstance(call.func, ast.Name):
            return ""
        if call.func.id in ("int", "str", "print", "range", "min", "max"):
            return "index"
        given = context.module.parameter(call, where)
        function = context.module.function(given) if given is not None else None
        if given is None or function is None:
            return ""
        return self._common(context.module.scopes[function].uses.get(given.arg, []), context, seen)

    def _common(
        self, names: list[ast.Name], context: Context, seen: set[ast.AST], named_device: bool = False
    ) -> str:
        found = {self.use(name, context, seen) for name in names if isinstance(name.ctx, ast.Load)} - {
            "either"
        }
        if not found:
            return "index"
        if found == {"device", "index"}:
            return "both"
        if named_device and found == {"device", ""}:
            return "likely"
        return found.pop() if len(found) == 1 else ""


_LIKE = {Kind.DEVICE: "device", Kind.TEXT: "device", Kind.INDEX: "index"}
_INDICES = words("rank local_rank device_index index gpu_id")


class Seed(Rule, name="seed"):
    """`torch.cuda.manual_seed` and `manual_seed_all` seed the accelerator, and still not the CPU."""

    _QUIET = ("torch.manual_seed", "random.seed", "numpy.random.seed", "torch.cuda.manual_seed")

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        name = context.cuda_name(node.func)
        if name.removeprefix("random.") not in ("manual_seed", "manual_seed_all"):
            return None
        context.done.add(node.func)
        edits = [context.edit(node.func, str(context.target.function(name)))]
        same = not context.target.is_torch and self._follows_same_seed(node, context)
        if same or context.guarded(node):
            return context.finding(node, edits)
        return context.called_on_device(node, edits)

    def _follows_same_seed(self, node: ast.Call, context: Context) -> bool:
        statement = context.module.statement(node)
        seed = ast.dump(node.args[0]) if node.args else ""
        read = _names(node.args, ast.Load)
        block = context.module.block(statement)
        for earlier in reversed(block[: block.index(statement)]):
            call = earlier.value if isinstance(earlier, ast.Expr) else None
            parts = _parts([*call.args] if isinstance(call, ast.Call) else [earlier])
            calls = any(isinstance(part, (ast.Call, ast.Await)) for part in parts)
            if calls or _names([earlier], ast.Store) & read:
                return False
            if context.calls(call, "torch.manual_seed", "torch.random.manual_seed"):
                assert isinstance(call, ast.Call)
                return bool(call.args) and ast.dump(call.args[0]) == seed
            quiet = isinstance(call, ast.Call) and context.name(call.func).startswith(self._QUIET)
            if not quiet and not isinstance(earlier, ast.Assign):
                return False
        return False


def _names(nodes: Iterable[ast.AST], when: type[ast.expr_context]) -> set[object]:
    """Return the names and attributes that are read or stored; an item is any item."""
    parts = [part for part in _parts(nodes) if isinstance(getattr(part, "ctx", None), when)]
    return {getattr(part, "id", getattr(part, "attr", ast.Subscript)) for part in parts}


class DeviceCount(Rule, name="device-count", levels=(Level.REWRITTEN, Level.REVIEW)):
    """`torch.cuda.device_count()` counts the accelerator's devices."""

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        if not context.calls(node, "torch.cuda.device_count"):
            return None
        context.done.add(node.func)
        target = context.target
        text = f"{target.function('device_count')}()"
        if target.is_torch or context.guarded(node):
            return context.rewrite(node, text)
        if not context.may_run_on_cpu:
            message = "on the CPU device_count() is the number of NUMA nodes, where torch.cuda's was 0"
            advice = "check what the program does with it on the CPU"
            return context.rewrite(node, text, Level.REVIEW, advice, message)
        compared = context.parent(node)
        if self._is_over(compared, node):
            # False on the CPU, as the comparison with 0 was.
            assert compared is not None
            return context.finding(node, context.only_on_device(compared, [context.edit(node, text)]))
        exact = f"{text} if {target.has_device} else 0"
        return context.rewrite(node, exact if context.stands_alone(node) else f"({exact})")

    @staticmethod
    def _is_over(compared: ast.AST | None, node: ast.Call) -> bool:
        least = {ast.Gt: 0, ast.GtE: 1, ast.Eq: 1}
        match compared:
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=int(number))]):
                return left is node and type(op) in least and number >= least[type(op)]
        return False


class DeviceProperties(Rule, name="properties"):
    """Total and free memory, and generators, come from the accelerator's own functions."""

    def visit_Attribute(self, node: ast.expr, context: Context) -> Found:
        own, torch = context.target.accelerator, f"{context.target.torch}.get_device_module()"
        is_torch, edits = context.target.is_torch, None
        match node:
            case ast.Attribute(value=ast.Call() as call, attr="total_memory") if context.calls(
                call, "torch.cuda.get_device_properties"
            ):
                edits = around_index(_given(call), context, f"{own}.total_memory(", node)
                edits = [context.edit(call.func, f"{torch}.get_device_properties")] if is_torch else edits
            case ast.Subscript(value=value) if context.name(value) == "torch.cuda.default_generators":
                edits = context.around(node.slice, f"{own}.default_generator(", ")", node)
                edits = [context.edit(value, f"{torch}.default_generators")] if is_torch else edits
            case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=0 | 1 as which)) if (
                context.calls(call, "torch.cuda.mem_get_info") and not is_torch
            ):
                text = f"{own}.{'total' if which else 'available'}_memory("
                edits = around_index(_given(call), context, text, node)
            case ast.Call() if context.calls(node, "torch.cuda.mem_get_info") and not is_torch:
                edits = self._both(node, context)
            case _:
                return None
        asked = getattr(node, "value", node)
        context.done.update([asked, getattr(asked, "func", asked)])
        context.take(*[] if edits else [node])
        advice = "" if edits else "give an index"
        return context.finding(node, edits or (), advice=advice)

    visit_Subscript = visit_Call = visit_Attribute

    @staticmethod
    def _both(call: ast.Call, context: Context) -> list[Edit] | None:
        """Return the edits for free and total memory, which name the index twice: None if it is not a plain one."""
        (start, end), text = context.module.span(call), context.module.text
        made = applied(text, around_index(_given(call), context, "\0(", call) or ())
        both = made[start : len(made) - len(text) + end]
        if both.count("(") != 1 or not both.startswith("\0"):
            return None
        names = (f"{context.target.accelerator}.{name}_memory" for name in ("available", "total"))
        both = ", ".join(both.replace("\0", name) for name in names)
        context.take(*call.args, *call.keywords)
        return [context.edit(call, both if isinstance(context.parent(call), ast.Assign) else f"({both})")]


def _given(call: ast.Call) -> ast.expr | None:
    return next(iter([*call.args, *(k.value for k in call.keywords)]), None)


def around_index(
    given: ast.expr | None, context: Context, before: str, outer: ast.AST, none: str = ""
) -> list[Edit] | None:
    """Return the edits that call a function with the index of a device, None if that may be a device's text."""
    text, after = device_text(given, context), ")" if before else ""
    if given is None or context.calls(given, "torch.cuda.current_device") or (text and text.index is None):
        context.take(*[given] if given else [])
        return [context.edit(outer, f"{before}{text.constant or none if text else none}{after}")]
    if text is not None and text.index is not None:
        context.take(given)
        context.done.difference_update(ast.walk(text.index))
        context.opened.update([given] if isinstance(given, ast.JoinedStr) else [])
        return context.around(text.index, before, after, outer)
    if context.kinds.of(given) is not Kind.DEVICE:
        return None if context.kinds.of(given) is Kind.TEXT else context.around(given, before, after, outer)
    loose = not isinstance(given, PRIMARY)
    return context.around(given, before + "(" * loose, f"{')' * loose}.index{after}", outer)


class DeviceContext(Rule, name="device-context", levels=ANY):
    """`with torch.cuda.device(i):` becomes the context of accel_core or torch.accelerator."""

    def visit_With(self, node: ast.With | ast.AsyncWith, context: Context) -> Found:
        calls = [item.context_expr for item in node.items if item.optional_vars is None]
        return [found for call in calls if (found := self._entered(call, node.body, context))]

    visit_AsyncWith = visit_With

    def _entered(self, call: ast.expr, body: list[ast.stmt], context: Context) -> Finding | None:
        if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
            return None
        name, given = context.cuda_name(call.func), call.args[0]
        if name not in ("device", "device_of"):
            return None
        known = device_text(given, context) or context.kinds.of(given) in _PLACES
        if name == "device_of":
            known = isinstance(given, ast.Name | ast.Attribute)
        context.done.add(call.func)
        if kernel := launches_kernel(body, context):
            return context.report(call, f"a context for {kernel}, which is CUDA's", "keep it")
        before = f"{context.target.device_index}("
        if not context.target.device_index:
            message = "DeepSpeed's interface has no context for the current device"
            return context.report(call, message, ADVICE[name])
        if not known:
            return context.report(call, "a context for an x that may be an index or a device", ADVICE[name])
        if name == "device_of":
            return context.finding(call, context.around(given, before, ".device.index)", call))
        return context.finding(call, around_index(given, context, before, call, "None") or ())


_PLACES = (Kind.DEVICE, Kind.INDEX, Kind.NONE)


class RuntimeFunction(Rule, name="runtime", levels=ANY):
    """A function of torch.cuda is called on the accelerator."""

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        match node:
            case ast.Call(func=ast.Name(id="hasattr"), args=[asked, ast.Constant(value=str(name))]):
                text = context.target.function(name) if context.name(asked) == "torch.cuda" else None
                if text is not None and text.endswith(f".{name}"):
                    return context.rewrite(asked, text[: -len(name) - 1])
        return None

    def visit_Attribute(self, node: ast.Attribute | ast.Name, context: Context) -> Found:
        name, target = context.cuda_name(node), context.target
        if not name or isinstance(node.ctx, (ast.Store, ast.Del)):
            return None
        context.done.add(node)
        text = target.function(name)
        if text is None:
            return self._without_counterpart(node, name, context)
        group = "streams" if name in ("stream", "current_stream", "default_stream") else ""
        call = context.parent(node)
        if not isinstance(call, ast.Call) or call.func is not node:
            message = f"{name} is passed on, not called: the accelerator is chosen at this line"
            return context.rewrite(node, text, Level.REVIEW, "check when the line runs", message, group)
        edits = [context.edit(node, text), *self._named_index(call, name, context)]
        level, message, advice = None, "", ""
        mistaken = self._device_as_index(call, name, context)
        if mistaken is not None and not target.is_torch:
            level, message = Level.REVIEW, "a device is given where the accelerator expects an index"
            if device_text(mistaken, context) is None and context.kinds.of(mistaken) is not Kind.DEVICE:
                advice = "check that it is not a device: give the index of one"
            else:
                edits += around_index(mistaken, context, "", mistaken, "None") or []
        guarded = context.guarded(node)
        if target.is_torch and name in RAISE_WITHOUT_DEVICE and not guarded:
            return context.called_on_device(call, edits, "{}" if name == "memory_stats" else "0")
        if level is None and not guarded and context.may_run_on_cpu:
            if name == "is_bf16_supported" and not target.is_torch:
                edits = context.only_on_device(call, edits)
            if name.rpartition(".")[2] in _ZERO:
                level, advice = Level.REVIEW, "on the CPU it was 0, and is the process's memory now"
        return context.finding(call, edits, level, advice, message, group)

    visit_Name = visit_Attribute

    @staticmethod
    def _named_index(call: ast.Call, name: str, context: Context) -> list[Edit]:
        """Give by position what only torch calls `device`; the index of a random state keeps a name, its own."""
        if name.rpartition(".")[2] == "set_rng_state" and not context.target.is_torch:
            by_name = keyword(call, "device")
            return [Edit(*context.module.keyword_name(by_name), "device_index=")] if by_name else []
        if call.args or len(call.keywords) != 1 or call.keywords[0].arg not in ("device", "device_index"):
            return []
        return [Edit(*context.module.keyword_name(call.keywords[0]), "")]

    @staticmethod
    def _device_as_index(call: ast.Call, name: str, context: Context) -> ast.expr | None:
        given = argument(call, "device")
        if name.rpartition(".")[2] == "set_rng_state":
            by_name = keyword(call, "device")
            given = call.args[1] if len(call.args) > 1 else by_name.value if by_name else None
        if given is None or name in ("Stream", "Event", "stream", "manual_seed", "_lazy_call"):
            return None
        device = context.kinds.of(given) is Kind.DEVICE or device_text(given, context) is not None
        device = device or (context.kinds.of(given) is Kind.UNKNOWN and named(given, DEVICE_NAME))
        return given if device else None

    @staticmethod
    def _without_counterpart(node: ast.AST, name: str, context: Context) -> Finding:
        torch = context.target.torch
        if name == "OutOfMemoryError":
            message = "torch.OutOfMemoryError is the same class (torch 2.5)"
            return context.rewrite(node, f"{torch}.OutOfMemoryError", message=message)
        if context.target.is_torch and name.startswith("get_device_"):
            message = "asked of the device's own module"
            return context.rewrite(node, f"{torch}.get_device_module().{name}", Level.REVIEW, message=message)
        advice = ADVICE.get(name.removeprefix("random.").removeprefix("memory."), _KEEP)
        return context.report(node, f"torch.cuda.{name} has no counterpart on every accelerator", advice)


_ZERO = words(
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached max_memory_cached"
)
_KEEP = "keep it for CUDA, behind a condition, or do without it"
#: Questions that only CUDA answers.
CUDA_ALONE = words("get_device_name get_device_capability get_device_properties get_arch_list memory_summary")
#: What to do about names that no other accelerator has.
ADVICE = {
    "get_device_capability": "ask for what is meant: is_bf16_supported(), is_fp16_supported(), is_triton_supported()",
    "get_device_properties": "total_memory(i) for the memory; the rest is CUDA's own",
    "get_device_name": "print get_accelerator().current_device_name(), or ask torch.get_device_module()",
    "device": "with accel_core.device_index(i): or set_device(i) and back; A.device(i) does not change the device",
    "device_of": "with accel_core.device_index(x.device.index):",
    "memory_summary": "print memory_stats(), or ask torch.get_device_module()",
    "nvtx.range": "range_push(message) and range_pop() on the accelerator",
    "ipc_collect": "leave it out: it frees memory that CUDA shares between processes",
    "get_rng_state_all": "[get_accelerator().get_rng_state(i) for i in range(get_accelerator().device_count())]",
    "set_rng_state_all": "set_rng_state(state, i) for each device",
    "graph": "get_accelerator().capture_to_graph(graph), where create_graph() is not None",
    "CUDAGraph": "get_accelerator().create_graph(), None where there are no graphs",
    "make_graphed_callables": "capture by create_graph() and capture_to_graph(), where there are graphs",
    "comm": "torch.distributed",
    "nccl": "torch.distributed",
    "seed": "torch.seed()",
    "seed_all": "torch.seed()",
    "init": "leave it out: the accelerator is initialised at its first use",
    "is_initialized": "leave it out, or ask torch.get_device_module()",
}
