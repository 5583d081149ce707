# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Makes C++ of operators.txt: for each operator a body and the two functions by which torch_npu calls it."""

import re
from collections.abc import Iterator

_LINE = re.compile(r"(\w+)\((.*?)\): (.*)")
_HANDLES = {
    "Tensor": "const aclTensor*",
    "Output": "const aclTensor*",
    "Tensors": "const aclTensorList*",
    "Scalar": "const aclScalar*",
    "MaybeScalar": "const aclScalar*",
    "Scalars": "const aclScalarList*",
    "Ints": "const aclIntArray*",
    "Bools": "const aclBoolArray*",
    "Text": "const char*",
}

_FUNCTIONS = """
static void {name}_body({taken}) {{
{body}
}}
CANN_API int aclnn{name}GetWorkspaceSize({passed}, uint64_t* workspace_, aclOpExecutor** executor_) {{
  Plan plan_("aclnn{name}");
  const auto arguments_ = std::make_tuple({converted});
  return plan_.end(workspace_, executor_, [arguments_] {{ std::apply({name}_body, arguments_); }});
}}
CANN_API int aclnn{name}(void*, uint64_t, aclOpExecutor* executor, aclrtStream stream) {{
  return queue(executor, stream);
}}
"""


def source(table: str) -> str:
    """Return the C++ of a table of operators."""
    functions = [_functions(line) for line in _expanded(table)]
    return '#include "bodies.h"\nusing namespace emulated;\n' + "".join(functions)


def _expanded(table: str) -> Iterator[str]:
    """Yield a line for each operator."""
    for line in table.splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith("each "):
            yield line
            continue
        names, _, template = line.removeprefix("each ").partition(": ")
        for each in names.split():
            name, _, other = each.partition("=")
            yield (
                template.replace("{Name}", name)
                .replace("{name}", other or name.lower())
                .replace("{{", "{")
                .replace("}}", "}")
            )


def _functions(line: str) -> str:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"not an operator: {line}")
    name, parameters, statements = found.groups()
    pairs = [parameter.split() for parameter in parameters.split(", ")]
    return _FUNCTIONS.format(
        name=name,
        taken=", ".join(f"const {word}& {argument}" for word, argument in pairs),
        passed=", ".join(f"{_HANDLES.get(word, word)} {argument}" for word, argument in pairs),
        converted=", ".join(f"plan_.take<{word}>({argument})" for word, argument in pairs),
        body="\n".join(_statement(each.strip()) for each in _separated(statements)),
    )


def _separated(statements: str) -> list[str]:
    """Split at semicolons, but for those inside of a C++ block."""
    return [statements] if "{ return" in statements else statements.split("; ")


def _statement(text: str) -> str:
    targets, equal, value = text.partition(" = ")
    names = targets.split(", ")
    if not equal or not all(name.isidentifier() for name in names):
        return f"  {text};"
    if len(names) == 1:
        return f"  put({targets}, {value});"
    parts = [f"found_{number}" for number in range(len(names))]
    puts = "".join(f"  put({name}, {part});\n" for name, part in zip(names, parts, strict=True))
    return f"  const auto [{', '.join(parts)}] = {value};\n{puts}"
