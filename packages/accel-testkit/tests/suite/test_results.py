# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The report of a class with several mistakes: failures in groups, the simplest check in full, true messages."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from torch.nn import functional

from accel_testkit.suite import results
from accel_testkit.suite.expect import factor

#: The mistakes of the class `Wrong`, by the method, op or check that a report has to name.
MISTAKES = {
    "the backend gluu", "is_bf16_supported", "on_accelerator", "memory_allocated",
    "max_memory_allocated", "manual_seed_all", "streams.events_tell_milliseconds", "lazy_call", "FusedLionBuilder",
}  # fmt: skip
#: What else fails because of them: environment for that backend, and other answers in those units and types.
FOLLOWING = {"export_envs", "supported_dtypes", "reset_max_memory_allocated", "reset_peak_memory_stats"}


@pytest.fixture
def wrong(run_suite: Any, install_site: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs checks on a class with all of these mistakes."""
    install_site()
    from accel_good.accelerator import GOOD_Accelerator as Good
    from broken.device import Seconds
    from broken.ops import ChangedOp

    def swapped(op, chunk, flag, lists, lr, beta1, beta2, *rest):
        op.multi_tensor_lion(chunk, flag, lists, lr, beta2, beta1, *rest)

    class Wrong(Good):
        Event: Any = Seconds

        def create_op_builder(self, class_name: str) -> Any:
            builder = super().create_op_builder(class_name)
            if class_name == "FusedLionBuilder":
                load, changed = builder.load, {"multi_tensor_lion": swapped}
                monkeypatch.setattr(builder, "load", lambda *a: ChangedOp(load(*a), changed))
            return builder

    answers = {
        "communication_backend_name": lambda self: "gluu",
        "is_bf16_supported": lambda self: 1,
        "on_accelerator": lambda self, tensor: True,
        "memory_allocated": lambda self, device_index=None: Good.memory_allocated(self, device_index) // 1024,
        "max_memory_allocated": lambda self, device_index=None: (
            Good.max_memory_allocated(self, device_index) // 1024
        ),
        "manual_seed_all": lambda self, seed: self.manual_seed(seed),
        "lazy_call": lambda self, callback: None,
    }
    for name, answer in answers.items():
        setattr(Wrong, name, answer)
    monkeypatch.setattr("accel_good.accelerator.GOOD_Accelerator", Wrong)

    def run(*arguments: str) -> dict[str, dict[str, Any]]:
        checks = run_suite(*arguments, "--accel", "good").document["checks"]
        return {check["id"]: check for check in checks if check["outcome"] == "failed"}

    return run


FILES = [f"accel_testkit.suite.test_{file}" for file in ("memory", "device_index", "streams", "ops")]


def test_failures_are_grouped_by_op_or_method(wrong: Any, capsys: Any) -> None:
    failed = wrong(*FILES, "-k", "figure or tell or Lion")
    assert {row["cause"] for row in failed.values()} < MISTAKES
    report = capsys.readouterr().out
    assert f"failed: {len(failed)} checks, by 4 methods or ops" in report
    assert report.count("  expected: ") == 4
    first = ("figure_follows_tensors[memory_allocated]", "events_tell_milliseconds", "samples_are_right")
    places = [report.index(f"test_{name}") for name in first]
    assert places == sorted(places)
    assert (
        "FusedLionBuilder: see ops.samples_are_right[FusedLionBuilder-multi_tensor_lion-bf16] first" in report
    )


def test_units_and_swapped_arguments_are_named_for_what_they_are(wrong: Any) -> None:
    failed = wrong(*FILES, "-k", "memory or milliseconds or reset or strides and Lion")
    texts = {name: row["reason"] for name, row in failed.items()}
    about_memory = [text for name, text in texts.items() if name.startswith(("memory.", "device_index."))]
    assert len(about_memory) > 5
    assert not [text for text in about_memory if "pass the index on" in text]
    assert "1024 times too small" in texts["memory.figure_follows_tensors[memory_allocated]"]
    assert "1000 times too small" in texts["streams.events_tell_milliseconds"]
    assert "ops.any_argument_may_have_strides[FusedLionBuilder]" not in texts


def test_wrong_operator_of_torch_is_the_cause(run_suite: Any, install_site: Any, monkeypatch: Any) -> None:
    install_site()
    right, number = functional.scaled_dot_product_attention, itertools.count(1)
    # A check calls an operator on the device, then on the host; both are the CPU here.
    wrong = lambda *a, **more: right(*a, **more) * (1 + next(number) % 2)  # noqa: E731
    monkeypatch.setattr(functional, "scaled_dot_product_attention", wrong)
    files = [f"accel_testkit.suite.test_{file}" for file in ("op_attention", "operators", "op_quantizer")]
    checks = run_suite(*files, "-k", "hosts or two_ops or quantizer", "--accel", "good").document["checks"]
    causes = {row["id"].partition(".")[0]: row["cause"] for row in checks if row["outcome"] == "failed"}
    assert causes == dict.fromkeys(("operators", "op_attention"), "torch's scaled_dot_product_attention")


@pytest.mark.slow
def test_a_whole_report_has_few_groups(wrong: Any) -> None:
    causes = {row["cause"] for row in wrong("accel_testkit.suite").values()}
    assert causes == MISTAKES | FOLLOWING


@pytest.mark.parametrize(
    ("found", "wanted", "said"),
    [
        (40 << 10, 40 << 20, "1024 times too small"),
        (0.02, 20.0, "1000 times too small"),
        (20_500.0, 20.0, "1024 times too large"),
        (40, 40 << 20, "1048576 times too small"),
        (40 << 20, 40 << 20, ""),
        (0, 40 << 20, ""),
        (-5, 40 << 20, ""),
        (1 << 20, 40 << 20, ""),
    ],
)
def test_a_factor_of_units_is_named_and_no_other(found: float, wanted: float, said: str) -> None:
    assert factor(found, wanted).partition(":")[0] == said


def test_emulated_driver_is_not_real_hardware(monkeypatch: Any) -> None:
    assert results.notes() == []
    monkeypatch.setenv("ACCEL_SIM_RUNTIME", "torch_npu")
    (note,) = results.notes()
    assert note.startswith("torch_npu on an emulated driver: ")
