# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Write docs/results/port.md: what `accel port` finds in public code, beside a grep, and how long it takes.

`python -m benchmarks.port OWNER/NAME@COMMIT=FOLDER …`: checkouts are fetched for reference and never committed.
"""

import ast
import io
import os
import re
import resource
import sys
import time
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any

from accel_port.files import Text, found_in
from accel_port.project import FileResult, port_files
from benchmarks import results

#: What people search for: no Python is known.
_GREP = re.compile(r"torch\.cuda|\.cuda\(|['\"]cuda|\bnccl\b|\bis_cuda\b|\.cuda\.")
_REASONS = (
    "in a comment or docstring", "inside a longer text", "an import that is covered or stays",
    "a name of the program's own", "of another library", "a text that is printed or looked up",
    "marked to be kept", "other",
)  # fmt: skip


def main() -> int:
    """Port each checkout with two processes, and write the table."""
    parser = results.parser(__doc__)
    parser.add_argument("checkouts", nargs="+", metavar="OWNER/NAME@COMMIT=FOLDER")
    options = parser.parse_args()
    rows, missed = [], []
    for checkout in options.checkouts:
        name, _, folder = checkout.partition("=")
        row, other = _counted(name, Path(folder))
        rows.append(row)
        missed += [f"{name}: {line}" for line in other]
    text = (
        "`accel port` over two public code bases; nothing is written. *Uses* are the findings: *rewritten*,"
        " *to be reviewed* (rewritten, and a person should look), *left* with a reason.\n\n"
        f"*Lines of grep* are what `grep -E '{_GREP.pattern}'` prints, which knows no Python. *Not seen by grep* are"
        " findings on other lines: aliases, integers as devices, `device_ids`. *Grep alone* are lines without a"
        " finding; the rows below say why.\n\n"
        "The goal is less than 30 s for 1,000 files on two processors. The load of the machine was"
        f" {os.getloadavg()[0]:.0f} at the end, where 2 would be its own work alone. *CPU s* are what one free"
        " processor needs; two need half of it."
    )
    if missed:
        text += (
            "\n\nLines of *other*, the first twelve; they reach torch through the name of another module:\n\n"
        )
        text += "\n".join(f"- `{line}`" for line in missed[:12])
    table = [{"": key, **{row["checkout"]: row[key] for row in rows}} for key in list(rows[0])[1:]]
    results.write("port", "Porting public code", text, table, options.out)
    return 0


def _counted(name: str, folder: Path) -> tuple[dict[str, Any], list[str]]:
    files = found_in([folder])
    began, used = time.perf_counter(), _cpu()
    ported = port_files(files, jobs=2)
    elapsed, cpu = time.perf_counter() - began, _cpu() - used
    levels = Counter(row.finding.level.value for result in ported for row in result.rows)
    grep, unseen, reasons, other = 0, 0, Counter[str](), []
    for result in ported:
        if result.failure or result.path.suffix == ".ipynb":
            continue
        text = Text.decode(result.before).text
        lines = text.splitlines()
        printed = {number for number, line in enumerate(lines, 1) if _GREP.search(line)}
        covered = {n for row in result.rows for n in range(row.line, row.end_line + 1)}
        grep += len(printed)
        unseen += sum(not printed & set(range(row.line, row.end_line + 1)) for row in result.rows)
        for number, reason in reasons_of(text, printed - covered, result):
            reasons[reason] += 1
            if reason == "other":
                other.append(f"{result.path.relative_to(folder)}:{number}: {lines[number - 1].strip()[:100]}")
    row: dict[str, Any] = {
        "checkout": name,
        "files": len(files),
        "not Python": sum(bool(result.failure) for result in ported),
        "uses": sum(levels.values()),
        "rewritten": levels["rewritten"],
        "to be reviewed": levels["review"],
        "left": levels["reported"],
        "lines of grep": grep,
        "not seen by grep": unseen,
        "grep alone": sum(reasons.values()),
        **{reason: reasons[reason] for reason in _REASONS},
        "s for 1,000 files": elapsed / len(files) * 1000,
        "CPU s for 1,000 files": cpu / len(files) * 1000,
    }
    return row, other


def _cpu() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def reasons_of(text: str, numbers: set[int], result: FileResult) -> list[tuple[int, str]]:
    """Say for each line why it has no finding."""
    if not numbers:
        return []
    tree = ast.parse(text)
    plain: set[int] = set()
    imports: set[int] = set()
    texts: dict[int, list[str]] = {}
    for node in ast.walk(tree):
        lines = range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", 0) or 0) + 1)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            plain.update(lines)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.update(lines)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for line in lines:
                texts.setdefault(line, []).append(node.value)
    code: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.COMMENT, tokenize.STRING):
            code[token.start[0]] = code.get(token.start[0], "") + token.string
    return [
        (n, _reason(n, text.splitlines()[n - 1], code.get(n, ""), n in plain, n in imports, texts.get(n, [])))
        for n in sorted(numbers)
    ]


def _reason(number: int, line: str, code: str, plain: bool, imported: bool, texts: list[str]) -> str:
    if re.search(r"#\s*(ignore-cuda|accel:\s*keep)", line):
        return "marked to be kept"
    found = [text for text in texts if re.search("cuda|nccl", text)]
    if imported:
        return "an import that is covered or stays"
    if re.search(r"(numba|cupy|jax|paddle|mxnet|mx|tf|dgl|tensorflow)\b", code):
        return "of another library"
    if re.search(r"cuda|nccl", code, re.IGNORECASE):
        return "a name of the program's own" if "torch.cuda" not in code else "other"
    if plain or not found:
        return "in a comment or docstring"
    if any(text in ("cuda", "nccl") or text.startswith("cuda:") for text in found):
        return "a text that is printed or looked up"
    return "inside a longer text"


if __name__ == "__main__":
    sys.exit(main())
