# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranges, environment, torch.compile: refused arguments, borrowed variables, things left behind."""

from __future__ import annotations

import os
from collections.abc import MutableMapping, Sequence
from typing import Any

from accel_good.accelerator import GOOD_Accelerator

from broken import SHAPES, answers, breaks, broken

_IDS = ("two digits", "texts of two digits", "a whole machine", "names")
_SHOWN = ("all", "three", "one")


broken("PopTakesNoDomain", *SHAPES, "environment.range_has_any_name", range_pop=lambda self: None)
broken("PushTakesAMessageOnly", *SHAPES, "environment.range_has_any_name", range_push=lambda self, msg: None)
broken(
    "PushDemandsADomain",
    *SHAPES,
    "environment.range_has_any_name",
    range_push=lambda self, msg, domain, category=None: None,
)


@breaks("environment.range_has_any_name")
class PopNeedsAPush(GOOD_Accelerator):
    _open = 0

    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        self._open += 1

    def range_pop(self, domain: str | None = None) -> None:
        self._open -= 1
        if self._open < 0:
            raise RuntimeError("no range is open")


@breaks("answers.each_compile_backend_can_be_set")
class BackendIsThatOfTheClass(GOOD_Accelerator):
    _shared = ""

    def set_compile_backend(self, backend: str) -> None:
        super().set_compile_backend(backend)
        type(self)._shared = backend

    def get_compile_backend(self) -> str:
        return self._shared or super().get_compile_backend()


broken("DomainsAreNone", "answers.answer_has_its_type[supports_nvtx_domain]", supports_nvtx_domain=None)
answers({"visible_devices_envs": []}, "environment.visible_devices_have_a_variable")
answers(
    {"set_visible_devices_envs": None},
    "environment.visible_devices_are_the_ids_given",
    "environment.visible_devices_are_the_ids_given",
    "environment.visible_devices_are_the_ids_given",
)
answers(
    {"export_envs": ["NCCL", "PATH"]},
    "environment.exports_have_what_ranks_need",
    "environment.exports_have_what_ranks_need",
)
answers({"export_envs": ["LOO"]}, "environment.exports_have_what_ranks_need")
answers({"export_envs": ["GLOO_", "H"]}, "environment.exports_leave_out_what_is_a_node_s_own")
answers({"export_envs": ("GLOO_",)}, "environment.exported_prefixes_are_names")
answers(
    {"export_envs": [""]},
    "environment.exports_leave_out_what_is_a_node_s_own",
    "environment.exported_prefixes_are_names",
    "environment.exports_have_what_ranks_need",
)
answers(
    {"get_compile_backend": None},
    "answers.each_compile_backend_can_be_set",
    "answers.each_compile_backend_can_be_set",
)
broken(
    "FirstVisibleDeviceOnly",
    "environment.visible_devices_are_the_ids_given",
    set_visible_devices_envs=lambda self, current_env, local_accelerator_ids: (
        GOOD_Accelerator.set_visible_devices_envs(self, current_env, local_accelerator_ids[:1])
    ),
)
broken(
    "VisibleDevicesAreSorted",
    "environment.visible_devices_are_the_ids_given probe.confirmation_tells_of_lists_that_are_refused",
    set_visible_devices_envs=lambda self, current_env, local_accelerator_ids: (
        GOOD_Accelerator.set_visible_devices_envs(self, current_env, sorted(local_accelerator_ids, key=int))
    ),
)


@breaks("environment.visible_devices_are_the_ids_given")
class FormerVisibleDevicesWin(GOOD_Accelerator):
    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        if not set(self.visible_devices_envs()) <= set(current_env):
            super().set_visible_devices_envs(current_env, local_accelerator_ids)


_GIVEN = "environment.visible_devices_are_the_ids_given"


@breaks(*(f"{_GIVEN}[{shown} shown-{kind}]" for shown in _SHOWN for kind in _IDS[:3]))
class VisibleDevicesAreSortedAsTexts(GOOD_Accelerator):
    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        ids = [*map(str, local_accelerator_ids)]
        if all(part.isdigit() for part in ids) and max(map(int, ids)) > 9:
            ids.sort()
        super().set_visible_devices_envs(current_env, ids)


@breaks(*(f"{_GIVEN}[{shown} shown-{kind}]" for shown in ("three", "one") for kind in _IDS))
class VisibleDevicesAreThoseOfThisProcess(GOOD_Accelerator):
    """It takes the ids for places in what the process itself is shown."""

    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        shown = os.environ.get("GOOD_VISIBLE_DEVICES", "").split(",")
        ids = [shown[int(i) % len(shown)] if str(i).isdigit() else "?" for i in local_accelerator_ids]
        super().set_visible_devices_envs(current_env, ids if shown != [""] else local_accelerator_ids)


@breaks(*(f"{_GIVEN}[{shown} shown-names]" for shown in _SHOWN))
class VisibleDevicesHaveNoNames(GOOD_Accelerator):
    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        ids = [i if str(i).isdigit() else place for place, i in enumerate(local_accelerator_ids)]
        super().set_visible_devices_envs(current_env, ids)


@breaks(
    "environment.visible_devices_of_this_process_stay memory.each_device_has_its_figures",
    "random.seed_reaches_its_devices streams.stream_is_of_the_device_named",
    "tensors.tensor_of_any_index_is_on_the_accelerator",
)
class VisibleDevicesLeak(GOOD_Accelerator):
    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        super().set_visible_devices_envs(current_env, local_accelerator_ids)
        super().set_visible_devices_envs(os.environ, local_accelerator_ids)


@breaks("environment.questions_leave_no_trace")
class ExportsLeak(GOOD_Accelerator):
    def export_envs(self) -> list[str]:
        os.environ["GOOD_ASKED"] = os.environ.get("GOOD_ASKED", "") + "again "
        return super().export_envs()


broken(
    "CompileBackendStays",
    "answers.each_compile_backend_can_be_set",
    get_compile_backend=lambda self: "inductor",
)


@breaks("answers.each_compile_backend_can_be_set")
class AnyCompileBackend(GOOD_Accelerator):
    def set_compile_backend(self, backend: str) -> None:
        self._compile_backend: str = backend


@breaks("answers.each_compile_backend_can_be_set")
class CompileBackendIsUnknown(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._compile_backend = "good_backend"

    def get_compile_backend(self) -> Any:
        return self._compile_backend


broken("RangesLeaveTheDomainOut", "environment.domain_gets_its_ranges", supports_nvtx_domain=True)


@breaks("environment.range_has_any_name[percent signs]")
class RangeNamesAreFormats(GOOD_Accelerator):
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        msg % ()  # a profiler formats it


broken(
    "RangeNamesAreAscii",
    "environment.range_has_any_name[letters]",
    range_push=lambda self, msg, domain=None, category=None: msg.encode("ascii"),
)


@breaks("environment.constructor_keeps_what_is_set")
class SettingsAreForced(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        os.environ["GOOD_LAZY_MODE"] = "0"
