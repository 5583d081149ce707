# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Write docs/results/port-commits.md: `accel port` beside ports that a project's maintainers made by hand.

`python -m benchmarks.port_commits CHECKOUT@COMMIT …`: the checkouts are git repositories, fetched for reference. The
state before each commit is ported, and each line with CUDA that the commit replaced is compared. `--lines` prints them.
"""

import difflib
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accel_port.files import Text, found_in
from accel_port.project import FileResult, port_files
from accel_port.rules.base import Edit, applied
from accel_port.syntax import Lines
from benchmarks import results
from benchmarks.port import reasons_of
from benchmarks.port_programs import by_expressions

_CUDA = re.compile(r"cuda|nccl|\.pin_memory\(\)", re.IGNORECASE)
_PORTED = "get_accelerator()"
_A = r"get_accelerator\(\)"
#: Forms of the tool, without spaces, that mean the maintainers' form where there is a device.
_FORMS = [
    (rf"{_A}\.(?:current_)?device(?:_name)?\(\)", "DEVICE"),
    (rf"not{_A}\.is_available\(\)", 'DEVICE=="cpu"'),
    (rf"{_A}\.is_available\(\)", 'DEVICE!="cpu"'),
    (rf"{_A}\.on_accelerator\(([\w.]+)\)", r'\1.device.type!="cpu"'),
    (r'not([\w.]+)\.device\.type!="cpu"', r'\1.device.type=="cpu"'),
    (rf"torch\.device\({_A}\.device_name\((.+)\)\)", r"torch.device(DEVICE,\1)"),
    (r'ifDEVICE!="cpu":|ifDEVICE!="cpu"else\w+', ""),
    (rf"{_A}\.\w+Tensor\(", "TENSOR("),
    (r"torch\.tensor\((.*?),dtype=torch\.\w+,device=DEVICE\)", r"TENSOR(\1)"),
]  # fmt: skip
_AGREE = ("as by hand", "in another form")
OUTCOMES = (*_AGREE, "otherwise", "an index, not a name", "reported", "not seen")


@dataclass(frozen=True)
class Line:
    """A line with CUDA, what the maintainers made of its block, what two ports made of it, and why it was left."""

    place: str
    before: str
    by_hand: str
    ported: str
    by_expressions: str
    why: str  # the message of the tool's finding, or why there is none
    found: bool

    def outcome(self, ported: str) -> str:
        """Say how a port of the line agrees with the maintainers'."""
        if ported == self.before:
            return "reported" if self.found else "not seen"
        if ".current_device()" in ported and ".current_device_name(" in self.by_hand:
            return "an index, not a name"
        pairs = zip(_AGREE, ([], _FORMS), strict=True)
        same = (name for name, forms in pairs if _plain(ported, forms) in _plain(self.by_hand, forms))
        return next(same, "otherwise")


def _plain(code: str, forms: list[tuple[str, str]]) -> str:
    plain = re.sub(r"[\s\\]+", "", code).replace("'", '"').rstrip(",")
    for pattern, form in forms:
        plain = re.sub(pattern, form, plain)
    return plain


def main() -> int:
    """Compare each commit, and write the table."""
    parser = results.parser(__doc__)
    parser.add_argument("commits", nargs="+", metavar="CHECKOUT@COMMIT")
    parser.add_argument("--lines", action="store_true", help="print each line that does not agree")
    options = parser.parse_args()
    lines = {name: list(_compared(*_split(name))) for name in options.commits}
    together = [line for found in lines.values() for line in found]
    titles = {name: _title(*_split(name)) for name in options.commits}
    rows = []
    for way in ("accel port", "regular expressions"):
        for name, found in [*lines.items(), ("together", together)]:
            outcomes = Counter(_outcome(line, way) for line in found)
            agreed = sum(outcomes[name] for name in _AGREE) / len(found)
            rows.append(
                {
                    "ported by": way,
                    "commit": titles.get(name, name),
                    "lines": len(found),
                    "agree": f"{agreed:.0%}",
                }
            )
            rows[-1] |= {name: outcomes[name] for name in OUTCOMES}
    if options.lines:
        _print([line for line in together if _outcome(line, "accel port") not in _AGREE])
    results.write("port-commits", "Ports that were made by hand", _text(together), rows, options.out)
    return 0


def _split(commit: str) -> tuple[Path, str]:
    folder, _, name = commit.rpartition("@")
    return Path(folder), name


def _title(checkout: Path, commit: str) -> str:
    subject = _git(checkout, "log", "-1", "--format=%s", commit).decode()
    return f"{checkout.name} {commit} {''.join(re.findall(r'#[0-9]+', subject))}"


def _outcome(line: Line, way: str) -> str:
    outcome = line.outcome(line.ported if way == "accel port" else line.by_expressions)
    return "not seen" if outcome == "reported" and way != "accel port" else outcome


def _text(lines: list[Line]) -> str:
    reasons = Counter((o, line.why) for line in lines if (o := _outcome(line, "accel port")) not in _AGREE)
    table = [{"lines": n, "the tool's port": o, "why": why} for (o, why), n in reasons.most_common()]
    return (
        "DeepSpeed's maintainers ported DeepSpeed from torch.cuda by hand, in these commits. The state before each is"
        " ported by `accel port`, and by the rules of DeepSpeed's tutorial as regular expressions. A line counts if it"
        " has `cuda`, `nccl` or `.pin_memory()` outside of its comment and the commit replaced it by code with"
        " `get_accelerator()`.\n\n"
        "*As by hand* is the same code, but for spaces and quotes. *In another form* means the same on a device, and"
        ' keeps the CPU as it was: `device_name() != "cpu"` for `is_available()`, a condition around a seed or a count,'
        " `torch.tensor(…)` for a typed tensor. The two *agree*. *An index, not a name* has `current_device()` where"
        " the maintainers have the device's name: as a device it works on CUDA alone; what is printed, or given to"
        " `fork_rng`, stays an index. *Otherwise* is other code.\n\n"
        "The tutorial was written after these commits, so its rules agree with them where a port is literal;"
        " [programs](port-programs.md) shows what a literal port does on the CPU and on devices.\n\n"
        f"Lines that do not agree:\n\n{results.markdown(table)}"
    )


def _print(lines: list[Line]) -> None:
    for line in lines:
        by_hand = "\n  hand: ".join(text.strip() for text in line.by_hand.splitlines())
        print(f"{line.place}: {_outcome(line, 'accel port')}: {line.why}\n  was:  {line.before.strip()}")
        print(f"  port: {line.ported.strip()}\n  hand: {by_hand}")


def _compared(checkout: Path, commit: str) -> Iterator[Line]:
    """Port the state before a commit, and yield each line with CUDA that the commit ported."""
    named = _git(checkout, "diff", "--name-only", "--diff-filter=M", f"{commit}^", commit, "--", "*.py")
    with tempfile.TemporaryDirectory() as folder:
        archive = _git(checkout, "archive", f"{commit}^", "--", ":(glob)**/*.py")
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        ported = {str(r.path.relative_to(folder)): r for r in port_files(found_in([Path(folder)]), jobs=2)}
    for name in named.decode().splitlines():
        if name in ported and not ported[name].failure:
            by_hand = Text.decode(_git(checkout, "show", f"{commit}:{name}")).text
            yield from _of_file(name, ported[name], by_hand)


def _git(checkout: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, check=True).stdout


def _of_file(name: str, result: FileResult, by_hand: str) -> Iterator[Line]:
    text = Text.decode(result.before).text
    old, new = text.splitlines(), by_hand.splitlines()
    rows = {n: row for row in result.rows for n in range(row.line, row.end_line + 1)}
    edits = [edit for row in result.rows for edit in row.finding.edits]
    replaced: dict[int, str] = {}
    for kind, first, last, start, end in difflib.SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        written = "\n".join(new[start : end + 1])  # a call may end on the next line
        if kind == "replace" and _PORTED in written:
            with_cuda = (at for at in range(first, last) if _CUDA.search(old[at].split("#")[0]))
            replaced |= dict.fromkeys(with_cuda, written)
    unseen = dict(reasons_of(text, {at + 1 for at in replaced if at + 1 not in rows}, result))
    for at, written in replaced.items():
        row, place = rows.get(at + 1), f"{name}:{at + 1}"
        before, ported = _around(at + 1, Lines(text), edits)
        why = row.finding.message if row else "an op builder" if "Builder" in old[at] else unseen[at + 1]
        yield Line(place, before, written, ported, by_expressions(before), why, row is not None)


def _around(number: int, lines: Lines, edits: list[Edit]) -> tuple[str, str]:
    """Return a line, with those that its edits reach, before and after them."""
    start, end = lines.offset(number, 0), lines.offset(number + 1, 0) - 1
    touching = [edit for edit in edits if edit.start <= end and start <= edit.end]
    start = min([start, *(lines.offset(lines.place(edit.start)[0], 0) for edit in touching)])
    end = max([end, *(lines.end_of_line(edit.end) for edit in touching)])
    inside = [
        Edit(e.start - start, e.end - start, e.text) for e in edits if start <= e.start and e.end <= end
    ]
    text = lines.text[start:end]
    return text, applied(text, inside)


if __name__ == "__main__":
    sys.exit(main())
