# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Functions of torch.cuda: availability, the current device, seeds, memory, and those without a counterpart."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, TypeGuard

from accel_port.kinds import Kind
from accel_port.rules.base import Context, Edit, Finding, Level, Rule, device_index, is_cuda_text, merged
from accel_port.rules.comparisons import launches_kernel
from accel_port.rules.devices import DEVICE_NAME
from accel_port.syntax import words
from accel_port.targets import RAISE_WITHOUT_DEVICE


class Availability(Rule[ast.AST]):
    """`torch.cuda.is_available()`, false on the CPU where an accelerator's own `is_available()` is true."""

    name = "is-available"
    summary = "`torch.cuda.is_available()` becomes a condition that is still false on the CPU."
    why = (
        "DeepSpeed's CPU accelerator is available, so `get_accelerator().is_available()` is true on the CPU. It is"
        " written only where the branch places tensors or waits, which changes nothing there."
    )
    nodes = (ast.Call, ast.Attribute)

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        if isinstance(node, ast.Attribute):
            if context.cuda_name(node) == "is_available" and not context.is_called(node):
                context.done.add(node)
                yield context.report(self, node, "is_available is passed on, not called", "call it there")
            return
        assert isinstance(node, ast.Call)
        if not context.calls(node, "torch.cuda.is_available"):
            return
        context.done.update([node, node.func])
        target = context.target
        if (link := cascade(node, context)) is not None:
            context.done.update(part for statement in link.body for part in ast.walk(statement))
            advice = "put a branch for get_accelerator() in its place, or keep the program's own choice"
            yield context.report(self, node, "the program chooses between kinds of devices itself", advice)
            return
        if self._guards_graphs(node, context):
            advice = "keep it: graphs are off on other devices, and the work is run itself"
            yield context.report(self, node, "it guards CUDA graphs, which are left", advice)
            return
        if self._guards_cuda_alone(node, context):
            advice = "keep it: on other devices the condition is false"
            yield context.report(self, node, "it guards functions that only CUDA has", advice)
            return
        if not target.is_torch and self._harmless(node, context):
            text = f"{target.accelerator}.is_available()"
        else:
            text = target.has_device
        parent = context.parent(node)
        tight = isinstance(parent, (ast.Compare, ast.UnaryOp, ast.Attribute, ast.BinOp, ast.Starred))
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not) and "!=" in text:
            context.done.add(parent)
            yield context.finding(
                self, parent, self.summary, [context.edit(parent, text.replace("!=", "=="))]
            )
            return
        yield context.finding(
            self, node, self.summary, [context.edit(node, f"({text})" if tight and " " in text else text)]
        )

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
            parts = [part for inner in statement.body for part in ast.walk(inner)]
            return any(
                context.cuda_name(part) in ("CUDAGraph", "graph", "make_graphed_callables") for part in parts
            )
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
        parts = [part for root in behind for part in ast.walk(root)]
        names = {name for part in parts if (name := context.cuda_name(part)) and context.is_called(part)}
        moves = any(
            is_cuda_text(part) or (getattr(part, "attr", "") in ("cuda", "to") and not context.name(part))
            for part in parts
        )
        return bool(names) and names <= CUDA_ALONE and not moves

    @staticmethod
    def _harmless(node: ast.Call, context: Context) -> bool:
        parent = context.parent(node)
        if isinstance(parent, ast.Assert):
            return True
        if isinstance(parent, ast.If) and parent.test is node:
            return not parent.orelse and context.harmless(parent.body)
        return False


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


_OTHER_DEVICE = re.compile(r"(?<![a-z])(mps|xpu|npu|hpu|mlu|sdaa|musa|xla|tpu|neuron)(?![a-z])")


class CurrentDevice(Rule[ast.Call]):
    """`torch.cuda.current_device()`, an index that much code uses as a device."""

    name = "current-device"
    summary = "`torch.cuda.current_device()` becomes a device's name where it is used as a device, an index elsewhere."
    why = "An integer means a CUDA device in `.to(0)`: it fails on the CPU, and on hpu for every rank but the first."
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Call,)

    def find(self, node: ast.Call, context: Context) -> Iterator[Finding]:
        if not context.calls(node, "torch.cuda.current_device"):
            return
        context.done.update([node, node.func])
        use = self.use(node, context, set())
        index = f"{context.target.function('current_device')}()"
        if use in ("device", "attribute"):
            level = Level.REVIEW if use == "attribute" else None
            advice = "check that other modules use the attribute as a device, too" if level else ""
            edits = [context.edit(node, context.target.current_device)]
            yield context.finding(self, node, self.summary, edits, level, advice)
        elif use == "index":
            yield context.finding(self, node, self.summary, [context.edit(node, index)])
        elif use == "both":
            message = "current_device() is used as a device and as an index: it stays an index"
            advice = "check that each use as a device has become device_name(index)"
            yield context.finding(self, node, message, [context.edit(node, index)], Level.REVIEW, advice)
        else:
            advice = (
                "write current_device_name() where a device is meant and current_device() where an index is"
            )
            yield context.report(self, node, "current_device() is used out of sight", advice)

    def use(self, node: ast.AST, context: Context, seen: set[ast.AST]) -> str:
        """Return how a value is used: device, index, both, or empty if that is not known."""
        if node in seen:
            return "seen"
        seen.add(node)
        parent = context.parent(node)
        call, where = context.receives(node)
        if call is not None:
            return self._use_as_argument(call, where, context, seen)
        match parent:
            case ast.Subscript() if parent.slice is node:
                return "index"
            case ast.BinOp() | ast.UnaryOp() | ast.FormattedValue() | ast.AugAssign():
                return "index"
            case ast.Compare(left=left, comparators=others):
                rest = [item for item in [left, *others] if item is not node]
                found = {context.kinds.of(item) for item in rest}
                return "device" if found & {Kind.DEVICE, Kind.TEXT} else "index"
            case ast.Assign(targets=[ast.Name() as name]) | ast.AnnAssign(target=ast.Name() as name):
                return self._use_of_name(name, context, seen)
            case ast.Assign(targets=[ast.Attribute(attr=name)]) if DEVICE_NAME.search(name):
                same = [n for n in ast.walk(context.module.tree) if getattr(n, "attr", "") == name]
                uses = {
                    self.use(n, context, seen) for n in same if isinstance(getattr(n, "ctx", None), ast.Load)
                }
                return "" if uses & {"index", "both"} else "attribute"
            case ast.Expr():
                return "index"
            case ast.IfExp() | ast.BoolOp():
                return self.use(parent, context, seen)
            case ast.List() | ast.Tuple():
                inner, keyword = context.receives(parent)
                if inner is not None and keyword in ("device_ids", "devices"):
                    return "index"
        return ""

    def _use_as_argument(self, call: ast.Call, where: str | int, context: Context, seen: set[ast.AST]) -> str:
        name = context.name(call.func)
        method = call.func.attr if isinstance(call.func, ast.Attribute) and not name else ""
        if name.startswith("torch.cuda."):
            return "index"
        if where in ("device", "map_location") or (method in ("to", "cuda") and where == 0):
            return "device"
        if name in ("torch.device", "torch.Generator", "torch.set_default_device") and where == 0:
            return "device"
        if name == "torch.device":
            return "index"
        if isinstance(call.func, ast.Name) and call.func.id in ("int", "str", "print", "range", "min", "max"):
            return "index"
        if "nvml" in (name + method).lower() or where in (
            "rank",
            "local_rank",
            "device_index",
            "index",
            "gpu_id",
        ):
            return "index"
        if method in ("info", "debug", "warning", "format", "append"):
            return "index" if method != "append" else ""
        if isinstance(call.func, ast.Name):
            return self._use_of_parameter(call, where, context, seen)
        return ""

    def _use_of_parameter(
        self, call: ast.Call, where: str | int, context: Context, seen: set[ast.AST]
    ) -> str:
        assert isinstance(call.func, ast.Name)
        made = [b.node for b in context.module.bindings(call.func)]
        if len(made) != 1 or not isinstance(made[0], ast.FunctionDef):
            return ""
        args = made[0].args
        named = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        arg = next((a for at, a in enumerate(named) if where in (at, a.arg)), None)
        scope = context.module.scopes[made[0]]
        if arg is None:
            return ""
        return self._common([self.use(use, context, seen) for use in scope.uses.get(arg.arg, [])])

    def _use_of_name(self, name: ast.Name, context: Context, seen: set[ast.AST]) -> str:
        uses = [use for use in context.module.uses(name) if isinstance(use.ctx, ast.Load)]
        found = self._common([self.use(use, context, seen) for use in uses])
        return "" if found == "both" and len(context.module.bindings(name)) > 1 else found

    @staticmethod
    def _common(uses: list[str]) -> str:
        found = set(uses) - {"seen"}
        if not found:
            return "index"
        if found == {"device", "index"}:
            return "both"
        return found.pop() if len(found) == 1 else ""


class Seed(Rule[ast.Call]):
    """Seeds of the device, which do nothing on the CPU."""

    name = "seed"
    summary = "`torch.cuda.manual_seed` and `manual_seed_all` seed the accelerator, and still not the CPU."
    why = (
        "On the CPU they did nothing; an accelerator's function would seed the CPU's generator and change its numbers."
        " After `torch.manual_seed` with the same seed that makes no difference, elsewhere a condition is written."
    )
    nodes = (ast.Call,)
    _QUIET = ("torch.manual_seed", "random.seed", "numpy.random.seed", "torch.cuda.manual_seed")

    def find(self, node: ast.Call, context: Context) -> Iterator[Finding]:
        name = context.cuda_name(node.func)
        if name not in ("manual_seed", "manual_seed_all", "random.manual_seed", "random.manual_seed_all"):
            return
        context.done.add(node.func)
        text = context.target.function(name)
        assert text is not None
        edits = [context.edit(node.func, text)]
        same = not context.target.is_torch and self._follows_same_seed(node, context)
        if same or context.guarded(node):
            yield context.finding(self, node, self.summary, edits)
            return
        yield guarded_statement(self, node, edits, context)

    def _follows_same_seed(self, node: ast.Call, context: Context) -> bool:
        statement = context.module.statement(node)
        seed = ast.dump(node.args[0]) if node.args else ""
        for earlier in reversed(context.module.block(statement)):
            if earlier.lineno >= statement.lineno:
                continue
            if not isinstance(earlier, ast.Expr):
                if not isinstance(earlier, ast.Assign):
                    return False
                if any(isinstance(part, ast.Call) for part in ast.walk(earlier)):
                    return False
                continue
            call = earlier.value
            if context.calls(call, "torch.manual_seed", "torch.random.manual_seed"):
                assert isinstance(call, ast.Call)
                return bool(call.args) and ast.dump(call.args[0]) == seed
            if not isinstance(call, ast.Call) or not context.name(call.func).startswith(self._QUIET):
                return False
        return False


class DeviceCount(Rule[ast.Call]):
    """`torch.cuda.device_count()`, 0 on the CPU where an accelerator counts NUMA nodes."""

    name = "device-count"
    summary = "`torch.cuda.device_count()` counts the accelerator's devices."
    why = "On the CPU it was 0; DeepSpeed's CPU accelerator counts NUMA nodes, at least 1."
    levels = (Level.REWRITTEN, Level.REVIEW)
    nodes = (ast.Call,)

    def find(self, node: ast.Call, context: Context) -> Iterator[Finding]:
        if not context.calls(node, "torch.cuda.device_count"):
            return
        context.done.update([node, node.func])
        target = context.target
        text = f"{target.function('device_count')}()"
        compared = context.parent(node)
        if target.is_torch or context.guarded(node):
            yield context.finding(self, node, self.summary, [context.edit(node, text)])
        elif not context.may_run_on_cpu:
            message = "on the CPU device_count() is the number of NUMA nodes, where torch.cuda's was 0"
            advice = "check what the program does with it on the CPU"
            yield context.finding(self, node, message, [context.edit(node, text)], Level.REVIEW, advice)
        elif self._is_over(compared, node):
            # False on the CPU, as the comparison with 0 was.
            before, after = ("", "") if isinstance(context.parent(compared), _AROUND_AND) else ("(", ")")
            edits = [
                context.edit(node, text),
                *context.around(compared, f"{before}{target.has_device} and ", after),
            ]
            yield context.finding(self, node, self.summary, merged(edits))
        else:
            exact = f"{text} if {target.has_device} else 0"
            exact = exact if context.stands_alone(node) else f"({exact})"
            yield context.finding(self, node, self.summary, [context.edit(node, exact)])

    @staticmethod
    def _is_over(compared: ast.AST | None, node: ast.Call) -> TypeGuard[ast.Compare]:
        match compared:
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=int(least))]) if (
                left is node
            ):
                return (isinstance(op, ast.Gt) and least >= 0) or (
                    isinstance(op, (ast.GtE, ast.Eq)) and least >= 1
                )
        return False


_AROUND_AND = (
    ast.If, ast.While, ast.IfExp, ast.BoolOp, ast.Assert, ast.Assign, ast.keyword, ast.Return, ast.Call,
)  # fmt: skip


class Properties(Rule[ast.AST]):
    """Values that an accelerator gives by functions of its own."""

    name = "properties"
    summary = "Total and free memory, and generators, come from the accelerator's own functions."
    nodes = (ast.Attribute, ast.Subscript, ast.Call)

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        own, module = context.target.accelerator, f"{context.target.torch}.get_device_module()"
        place: ast.AST = node
        match node:
            case ast.Attribute(value=ast.Call() as call, attr="total_memory") if context.calls(
                call, "torch.cuda.get_device_properties"
            ):
                text = f"{own}.total_memory({self._index(call, context)})"
                if context.target.is_torch:
                    place, text = call.func, f"{module}.get_device_properties"
            case ast.Subscript(value=value) if context.name(value) == "torch.cuda.default_generators":
                text = f"{own}.default_generator({context.module.code(node.slice)})"
                if context.target.is_torch:
                    place, text = value, f"{module}.default_generators"
            case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=0 | 1 as which)) if (
                context.calls(call, "torch.cuda.mem_get_info") and not context.target.is_torch
            ):
                text = f"{own}.{'total' if which else 'available'}_memory({self._index(call, context)})"
            case ast.Call() if context.calls(node, "torch.cuda.mem_get_info") and not context.target.is_torch:
                index = self._index(node, context)
                text = f"{own}.available_memory({index}), {own}.total_memory({index})"
                text = text if isinstance(context.parent(node), ast.Assign) else f"({text})"
            case _:
                return
        for part in (node, getattr(node, "value", None)):
            context.done.update([part, *([part.func] if isinstance(part, ast.Call) else [])] if part else [])
        yield context.finding(self, node, self.summary, [context.edit(place, text)])

    @staticmethod
    def _index(call: ast.Call, context: Context) -> str:
        argument = call.args[0] if call.args else next((k.value for k in call.keywords), None)
        if argument is None or context.calls(argument, "torch.cuda.current_device"):
            return ""
        index = device_as_index(argument, context)
        return context.module.code(argument) if index is None else "" if index == "None" else index


class DeviceContext(Rule[ast.AST]):
    """`with torch.cuda.device(i):`."""

    name = "device-context"
    summary = "`with torch.cuda.device(i):` becomes the context of accel_core or torch.accelerator."
    why = (
        "DeepSpeed's interface has no such context: `get_accelerator().device(i)` does not change the current device."
        " `--target accel` writes `with accel_core.device_index(i):`; `--target deepspeed` leaves it."
    )
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.With, ast.AsyncWith)

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        assert isinstance(node, ast.With | ast.AsyncWith)
        for call in [item.context_expr for item in node.items if item.optional_vars is None]:
            if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
                continue
            name, argument = context.cuda_name(call.func), call.args[0]
            if name not in ("device", "device_of"):
                continue
            index = device_as_index(argument, context)
            if name == "device_of":
                simple = isinstance(argument, ast.Name | ast.Attribute)
                index = f"{context.module.code(argument)}.device.index" if simple else None
            context.done.add(call.func)
            kernel = launches_kernel(node.body, context)
            if kernel is not None:
                found = f"a context for {kernel}, which is CUDA's", "keep it"
            elif not context.target.device_index:
                found = "DeepSpeed's interface has no context for the current device", ADVICE[name]
            elif index is None:
                found = "a context for an x that may be an index or a device", ADVICE[name]
            else:
                context.done.update(ast.walk(argument))
                edits = [context.edit(call, f"{context.target.device_index}({index})")]
                yield context.finding(self, call, self.summary, edits)
                continue
            yield context.report(self, call, found[0], found[1])


def device_as_index(argument: ast.expr, context: Context) -> str | None:
    """Return the index of what torch.cuda.device takes as a device, None if it may be a device or an index."""
    if context.calls(argument, "torch.cuda.current_device"):
        return f"{context.target.function('current_device')}()"
    if is_cuda_text(argument):
        return device_index(argument) or "None"
    kind = context.kinds.of(argument)
    if kind is Kind.DEVICE:
        return f"{context.module.code(argument)}.index"
    return context.module.code(argument) if kind in (Kind.INDEX, Kind.NONE) else None


class RuntimeFunction(Rule[ast.AST]):
    """Every other function that both have."""

    name = "runtime"
    summary = "A function of torch.cuda is called on the accelerator."
    why = "The keyword for the device is `device_index` there, so the argument is passed by position."
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Attribute, ast.Name)

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        name = context.cuda_name(node)
        if not name or isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            return
        context.done.add(node)
        if isinstance(node, ast.Attribute):
            context.done.add(node.value)
        text = context.target.function(name)
        if text is None:
            yield self._without_counterpart(node, name, context)
            return
        call = context.parent(node)
        edits = [context.edit(node, text)]
        level = None
        message = self.summary
        group = "streams" if name in ("current_stream", "default_stream") else ""
        if not isinstance(call, ast.Call) or call.func is not node:
            message = f"{name} is passed on, not called: the accelerator is chosen at this line"
            yield context.finding(self, node, message, edits, Level.REVIEW, "check when the line runs", group)
            return
        edits += self._by_position(call, context)
        mistaken = self._device_as_index(call, name, context)
        if mistaken is not None and not context.target.is_torch:
            level, message = Level.REVIEW, "a device is given where the accelerator expects an index"
            if isinstance(mistaken, ast.Constant):
                context.done.add(mistaken)
                edits.append(context.edit(mistaken, device_index(mistaken) or "None"))
            else:
                end = context.module.span(mistaken)[1]
                edits.append(Edit(end, end, ".index"))
        if context.target.is_torch and name in RAISE_WITHOUT_DEVICE and not context.guarded(node):
            yield guarded_statement(self, call, edits, context, "{}" if name == "memory_stats" else "0")
            return
        advice = ""
        on_cpu = level is None and not context.guarded(node) and context.may_run_on_cpu
        if name == "is_bf16_supported" and on_cpu and not context.target.is_torch:
            before, after = ("", "") if isinstance(context.parent(call), _AROUND_AND) else ("(", ")")
            edits = merged(
                [*context.around(call, f"{before}{context.target.has_device} and ", after), *edits]
            )
        if name.rpartition(".")[2] in _ZERO and on_cpu:
            level, advice = Level.REVIEW, "on the CPU it was 0, and is the process's memory now"
        yield context.finding(self, call, message, edits, level, advice, group)

    @staticmethod
    def _by_position(call: ast.Call, context: Context) -> list[Edit]:
        if call.args or len(call.keywords) != 1 or call.keywords[0].arg not in ("device", "device_index"):
            return []
        start, end = context.module.keyword_name(call.keywords[0])
        return [Edit(start, end, "")]

    @staticmethod
    def _device_as_index(call: ast.Call, name: str, context: Context) -> ast.expr | None:
        argument = (
            call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "device"), None)
        )
        if argument is None or name in ("Stream", "Event", "stream", "manual_seed", "_lazy_call"):
            return None
        device = context.kinds.of(argument) is Kind.DEVICE or is_cuda_text(argument)
        return argument if device and name.rpartition(".")[2] != "set_rng_state" else None

    def _without_counterpart(self, node: ast.AST, name: str, context: Context) -> Finding:
        if name == "OutOfMemoryError":
            edits = [context.edit(node, f"{context.target.torch}.OutOfMemoryError")]
            return context.finding(self, node, "torch.OutOfMemoryError is the same class (torch 2.5)", edits)
        if context.target.is_torch and name.startswith("get_device_"):
            edits = [context.edit(node, f"{context.target.torch}.get_device_module().{name}")]
            return context.finding(self, node, "asked of the device's own module", edits, Level.REVIEW)
        advice = ADVICE.get(name.removeprefix("random.").removeprefix("memory."), _KEEP)
        return context.report(
            self, node, f"torch.cuda.{name} has no counterpart on every accelerator", advice
        )


_ZERO = words(
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached max_memory_cached"
)
_KEEP = "keep it for CUDA, behind a condition, or do without it"
#: Questions that only CUDA answers.
CUDA_ALONE = words("get_device_name get_device_capability get_arch_list memory_summary")
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


def guarded_statement(
    rule: Rule[Any],
    call: ast.Call,
    edits: list[Edit],
    context: Context,
    otherwise: str = "None",
) -> Finding:
    """Return the finding that evaluates a call only where there is a device, as a statement or an expression."""
    module = context.module
    statement = module.statement(call)
    start, end = module.span(call)
    if isinstance(statement, ast.Expr) and statement.value is call and module.alone(statement):
        line = module.text[: module.span(statement)[0]]
        indent = line[len(line.rstrip(" \t")) :]
        newline = module.newline
        step = "\t" if indent.startswith("\t") else "    "
        head = Edit(start, start, f"if {context.target.has_device}:{newline}{indent}{step}")
        first, rest = edits[0], edits[1:]
        if first.start == start:
            edits = [Edit(first.start, first.end, head.text + first.text), *rest]
        else:
            edits = [head, *edits]
        return context.finding(rule, call, rule.summary, edits)
    first, rest = edits[0], edits[1:]
    before, after = ("", "") if context.stands_alone(call) else ("(", ")")
    opened = Edit(first.start, first.end, before + first.text) if first.start == start else first
    closed = Edit(end, end, f" if {context.target.has_device} else {otherwise}{after}")
    return context.finding(rule, call, rule.summary, [opened, *rest, closed])
