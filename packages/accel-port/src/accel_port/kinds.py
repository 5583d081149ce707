# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kind of an expression's value, as far as the module shows it: an index, a device, None, a tensor, …"""

from __future__ import annotations

import ast
from enum import Enum

from accel_port.expressions import is_constant, words
from accel_port.syntax import Bound, Module


class Kind(Enum):
    """The kinds that decide how a device argument is written."""

    UNKNOWN = "unknown"
    INDEX = "int"
    DEVICE = "device"
    NONE = "None"
    TEXT = "str"
    TRUTH = "bool"
    TENSOR = "tensor"
    MODULE = "module"
    LIST = "list"
    ITSELF = "itself"  # what is made from the name that is asked about, as in x = x.cuda()


_INDEX_CALLS = words(
    "int len torch.cuda.current_device torch.cuda.device_count torch.accelerator.current_device_index"
    " torch.distributed.get_rank torch.distributed.get_node_local_rank torch.distributed.get_world_size"
)
_CALLS = {
    "str": Kind.TEXT,
    "bool": Kind.TRUTH,
    "list": Kind.LIST,
    "torch.device": Kind.DEVICE,
    "torch.cuda.is_available": Kind.TRUTH,
    "torch.load": Kind.UNKNOWN,
} | dict.fromkeys(_INDEX_CALLS, Kind.INDEX)
_TENSOR_MAKERS = words(
    "tensor zeros ones empty full rand randn randint randperm arange linspace eye cat stack "
    "from_numpy as_tensor zeros_like ones_like empty_like full_like rand_like randn_like where matmul "
    "mm einsum FloatTensor LongTensor HalfTensor DoubleTensor IntTensor BoolTensor ByteTensor Tensor "
    "BFloat16Tensor ShortTensor CharTensor bmm triu tril cumsum exp log sqrt abs clamp sigmoid tanh softmax "
    "relu outer flip roll gather index_select masked_select logical_and logical_or logical_not sum mean"
)
_TENSOR_METHODS = words(
    "float half double long int bool contiguous view reshape unsqueeze squeeze permute transpose "
    "detach clone flatten expand repeat requires_grad_ type pin_memory t mean sum"
)
#: Methods that nothing but a tensor has, whatever it is called on.
_TENSORS_ALONE = words(
    "contiguous view view_as unsqueeze permute narrow detach expand expand_as requires_grad_ masked_fill"
    " masked_fill_ index_select type_as new_zeros new_ones new_full new_tensor new_empty clamp_ long half"
)
_RANK_METHODS = words("get_rank get_local_rank local_rank rank get_world_size get_node_local_rank")
_CONSTANTS = {bool: Kind.TRUTH, int: Kind.INDEX, type(None): Kind.NONE, str: Kind.TEXT}
_TYPES = {
    "int": Kind.INDEX,
    "torch.device": Kind.DEVICE,
    "str": Kind.TEXT,
    "bool": Kind.TRUTH,
    "torch.Tensor": Kind.TENSOR,
    "torch.nn.Module": Kind.MODULE,
    "None": Kind.NONE,
}


class Kinds:
    """Infers kinds in one module; the arguments of argparse are known by their destination."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._options: dict[str, Kind] = {}
        self._spawned: set[str] = set()
        self._active: set[int] = set()
        for node in module.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr == "add_argument":
                    self._add_option(node)
                elif node.func.attr in ("spawn", "start_processes"):
                    self._spawned.update(a.id for a in node.args[:1] if isinstance(a, ast.Name))

    def of(self, node: ast.AST | None) -> Kind:
        """Return the kind of an expression."""
        if node is None:
            return Kind.UNKNOWN
        if id(node) in self._active:
            return Kind.ITSELF
        self._active.add(id(node))
        try:
            kind = self._of(node)
        finally:
            self._active.discard(id(node))
        return Kind.UNKNOWN if kind is Kind.ITSELF and not self._active else kind

    def _of(self, node: ast.AST) -> Kind:
        match node:
            case ast.Constant(value=value):
                return _CONSTANTS.get(type(value), Kind.UNKNOWN)
            case ast.JoinedStr():
                return Kind.TEXT
            case ast.List() | ast.Tuple() | ast.ListComp():
                return Kind.LIST
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return Kind.TRUTH
            case ast.UnaryOp(operand=operand):
                return self.of(operand)
            case ast.BinOp(left=left, op=op, right=right):
                if isinstance(op, (ast.Mod, ast.FloorDiv, ast.Add, ast.Sub, ast.Mult)):
                    return self._common([left, right]) if self.of(left) is not Kind.TEXT else Kind.TEXT
            case ast.IfExp(body=body, orelse=orelse):
                return self._common([body, orelse])
            case ast.BoolOp(op=ast.Or(), values=values):
                return self._common(values)
            case ast.Name():
                return self._of_name(node)
            case ast.Attribute():
                return self._of_attribute(node)
            case ast.Call():
                return self._of_call(node)
            case ast.Subscript(value=value):
                if self._module.qualified(value) == "os.environ":
                    return Kind.TEXT
        return Kind.UNKNOWN

    def _common(self, nodes: list[ast.expr]) -> Kind:
        return _one({self.of(node) for node in nodes})

    def _of_name(self, node: ast.Name) -> Kind:
        bindings = [
            b for b in self._module.reaching(node) if not is_constant(b.value, None) or b.kind == "param"
        ]
        return _one({self._of_binding(binding) for binding in bindings})

    def _of_binding(self, binding: Bound) -> Kind:
        if binding.kind == "assign":
            if isinstance(binding.node, ast.AnnAssign) and (
                kind := self._of_annotation(binding.node.annotation)
            ):
                return kind
            return self.of(binding.value)
        if binding.kind == "for":
            made = binding.value.func if isinstance(binding.value, ast.Call) else None
            return Kind.INDEX if isinstance(made, ast.Name) and made.id == "range" else Kind.UNKNOWN
        if binding.kind == "param" and isinstance(binding.node, ast.arg):
            if kind := self._of_annotation(binding.node.annotation):
                return kind
            function = self._module.function(binding.node)
            first = function is not None and function.args.args[:1] == [binding.node]
            if first and function is not None and function.name in self._spawned:
                return Kind.INDEX
            if binding.value is not None and not is_constant(binding.value, None):
                return self.of(binding.value)
        return Kind.UNKNOWN

    def _of_annotation(self, annotation: ast.expr | None) -> Kind | None:
        match annotation:
            case None:
                return None
            case ast.Constant(value=None):
                return Kind.NONE
            case ast.Constant(value=str(text)):
                return _TYPES.get(text)
            case ast.Name(id=name) if name in _TYPES:
                return _TYPES[name]
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                found = {self._of_annotation(left), self._of_annotation(right)} - {Kind.NONE}
                return found.pop() if len(found) == 1 else None
            case ast.Subscript(value=value, slice=inner) if (
                self._module.qualified(value) == "typing.Optional"
            ):
                return self._of_annotation(inner)
        return _TYPES.get(self._module.qualified(annotation))

    def _of_attribute(self, node: ast.Attribute) -> Kind:
        if node.attr == "device":
            return Kind.DEVICE
        if node.attr == "index" and self.of(node.value) is Kind.DEVICE:
            return Kind.INDEX
        if node.attr in ("data", "grad"):
            return Kind.TENSOR
        if isinstance(node.value, ast.Name) and node.value.id in OPTION_OBJECTS:
            return self._options.get(node.attr, Kind.INDEX if node.attr == "local_rank" else Kind.UNKNOWN)
        if node.attr in ("local_rank", "rank"):
            return Kind.INDEX
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return self._of_own(node)
        return Kind.UNKNOWN

    def _of_own(self, node: ast.Attribute) -> Kind:
        """Return the kind of what a class gives one of its attributes, if it is the same everywhere."""
        owner = next((a for a in self._module.ancestors(node) if isinstance(a, ast.ClassDef)), None)
        kinds = set()
        for part in ast.walk(owner) if owner else ():
            if isinstance(part, ast.Attribute) and part.attr == node.attr and isinstance(part.ctx, ast.Store):
                made = self._module.parents[part]
                alone = isinstance(made, ast.Assign) and made.targets == [part]
                kinds.add(self.of(made.value) if alone and isinstance(made, ast.Assign) else Kind.UNKNOWN)
        return _one(kinds)

    def _of_call(self, node: ast.Call) -> Kind:
        name = self._module.qualified(node.func)
        if not name and isinstance(node.func, ast.Name) and not self._module.bindings(node.func):
            name = node.func.id
        if name in _CALLS:
            return _CALLS[name]
        if isinstance(node.func, ast.Name) and self._is_module_class(node.func):
            return Kind.MODULE
        if name.startswith("torch.nn.functional."):
            return Kind.TENSOR
        if name.startswith("torch.nn."):
            return Kind.MODULE
        if name.startswith("torch.") and name.rpartition(".")[2] in _TENSOR_MAKERS:
            return Kind.TENSOR
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in _RANK_METHODS:
                return Kind.INDEX
            if node.func.attr in ("to", "cuda", "cpu"):
                return self.of(node.func.value)
            if node.func.attr in _TENSORS_ALONE:
                return Kind.TENSOR
            if node.func.attr in _TENSOR_METHODS and self.of(node.func.value) is Kind.TENSOR:
                return Kind.TENSOR
        return Kind.UNKNOWN

    def _is_module_class(self, name: ast.expr) -> bool:
        """Return whether a class of this file is a torch module, and leaves `cuda` to torch."""
        if self._module.qualified(name).startswith("torch.nn."):
            return True
        bindings = self._module.bindings(name) if isinstance(name, ast.Name) else []
        if len(bindings) != 1 or not isinstance(made := bindings[0].node, ast.ClassDef):
            return False
        if any(isinstance(part, ast.FunctionDef) and part.name == "cuda" for part in made.body):
            return False
        return any(base is not name and self._is_module_class(base) for base in made.bases)

    def _add_option(self, node: ast.Call) -> None:
        flags = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        keywords = {k.arg: k.value for k in node.keywords}
        chosen = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
        given = keywords.get("dest")
        name = given.value if isinstance(given, ast.Constant) else chosen.lstrip("-").replace("-", "_")
        kind = Kind.UNKNOWN
        if isinstance(of := keywords.get("type"), ast.Name):
            kind = _TYPES.get(of.id, Kind.UNKNOWN)
        elif isinstance(action := keywords.get("action"), ast.Constant):
            if action.value in ("store_true", "store_false"):
                kind = Kind.TRUTH
        elif "default" in keywords:
            kind = self.of(keywords["default"])
        if isinstance(name, str):
            self._options[name] = kind if self._options.get(name, kind) is kind else Kind.UNKNOWN


def _one(kinds: set[Kind]) -> Kind:
    kinds -= {Kind.NONE, Kind.ITSELF}
    return kinds.pop() if len(kinds) == 1 else Kind.UNKNOWN


OPTION_OBJECTS = words("args opt opts options flags FLAGS hparams config cfg params")
