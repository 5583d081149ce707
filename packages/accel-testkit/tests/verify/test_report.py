# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The report: safe to show, short enough for an issue, and without names of the machine and its user."""

import getpass
import json
import socket
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from accel_testkit.verify import page
from accel_testkit.verify.report import Privacy, Report, StepRow, kept


def report(*rows: StepRow, **changed: Any) -> Report:
    plain = {
        "accelerator": "npu", "mode": "quick", "simulated": "", "made": "2026-01-02T03:04:05+00:00",
        "versions": {"python": "3.11.7", "torch": "2.13.0", "accel-core": "0.1.0"},
    }  # fmt: skip
    return Report(**{**plain, "rows": list(rows), **changed})


FAILED = StepRow(
    "device", "conformance on a device", "failed", 12.5, "3 passed, 1 failed",
    "start with the first", [{"name": "memory.figures", "reason": "expected 1\nfound 2"}],
)  # fmt: skip
SPEED = StepRow(
    "speed", "speed", "passed", 3.0, "1 measurements",
    table=[{"what": "copy", "size": "64 MiB", "value": 10.0, "unit": "GB/s", "reference": "torch", "ratio": 2.0}],
)  # fmt: skip


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = report(FAILED, SPEED)
    made.write(tmp_path / "report.json")
    assert kept(tmp_path / "report.json") == made


def test_the_summary_has_the_first_failure_and_at_most_twenty_lines() -> None:
    text = report(*[SPEED] * 8, FAILED, *[FAILED] * 30).text()
    assert len(text.splitlines()) <= 20
    short = report(SPEED, FAILED).text()
    assert "first to look at: conformance on a device: memory.figures: expected 1" in short
    assert "do: start with the first" in short
    assert all(len(line) <= 240 for line in short.splitlines())


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2}', '{"schema": 1, "rows": [1]}'])
def test_other_file_is_not_a_report(text: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(text)
    assert kept(tmp_path / "report.json") is None


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_runs_nothing_and_loads_nothing_whatever_the_report_says() -> None:
    attack = "</pre></svg><script>alert(1)</script><img src=http://x.example onerror=alert(1)>'\""
    row = StepRow(
        "x", attack, "failed", 1.0, attack, attack, [{"name": attack, "reason": attack}],
        [{"what": attack, "size": attack, "value": 1.0, attack: attack, "reference": attack, "ratio": 1.0}],
    )  # fmt: skip
    found = Tags(page.html(report(row, accelerator=attack, made=attack, versions={"torch": attack})))
    forbidden = {"script", "img", "iframe", "object", "embed", "form", "base", "a"}
    assert not forbidden & {tag for tag, _ in found.tags}
    for tag, attributes in found.tags:
        assert not any(name.startswith("on") or name == "src" for name in attributes)
        assert tag != "link" or attributes["href"] == "data:,"


def test_the_summary_sends_no_control_characters_to_the_terminal() -> None:
    attack = "a\x1b[2J\x1b]0;title\x07\r\n\u202eb\n" * 30
    failures = [{"name": attack, "reason": attack}]
    row = StepRow("x", attack, "failed", found=attack, advice=attack, failures=failures)
    text = report(row, accelerator=attack, made=attack).text()
    assert all(character.isprintable() for line in text.split("\n") for character in line)
    assert len(text.splitlines()) <= 20


def test_the_first_failure_stands_before_the_tables() -> None:
    text = "".join(Tags(page.html(report(SPEED, FAILED))).texts)
    assert text.index("memory.figures") < text.index("do: start with the first") < text.index("Steps")


def test_a_page_of_thousands_of_failures_shows_the_first_and_the_count() -> None:
    many = [{"name": f"check {n}", "reason": "x"} for n in range(3000)]
    html = page.html(report(StepRow("device", "suite", "failed", failures=many)))
    assert "and 2800 more" in html
    assert "check 2999" not in html


def test_a_report_does_not_say_whose_machine_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node17.cluster.example")
    monkeypatch.setattr(getpass, "getuser", lambda: "a.lovelace")
    monkeypatch.setattr(Path, "home", lambda: Path("/data/a.lovelace"))
    text = (
        f"File /data/a.lovelace/run.py on node17 (10.20.30.40, node17.cluster.example), card "
        f"12345678-90ab-cdef-1234-567890abcdef, a.lovelace@mail.example, {tmp_path}/steps, 127.0.0.1 torch 2.13.0, "
        "https://s3cret@proxy.example, 0a:1b:2c:3d:4e:5f"
    )
    failures = [{"name": "n", "reason": text}]
    row = StepRow("x", "x", "failed", found=text, failures=failures, table=[{"fact": text}])
    shown = json.dumps(asdict(Privacy(tmp_path).row(row)))
    secrets = ("lovelace", "node17", "10.20.30.40", "567890abcdef", "mail.example", "s3cret", "4e:5f")
    for secret in (*secrets, str(tmp_path)):
        assert secret not in shown
    for harmless in ("run.py", "127.0.0.1", "2.13.0", "/steps"):
        assert harmless in shown
