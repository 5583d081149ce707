# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is particular about a vendor's runtime, how real ones fail, and that a forked process cannot use a device."""

import json
import pickle

import pytest
import torch

from accel_sim import behaviours


def test_torch_itself_fails_to_import_when_cann_is_missing(python):
    done = python("npu", "import torch", behaviour=["npu.no-cann"])
    assert "RuntimeError: Failed to load the backend extension: torch_npu" in done.stderr
    assert "ImportError: libhccl.so: cannot open shared object file" in done.stderr


@pytest.mark.sample("npu*", "hpu.other-torch")
@pytest.mark.parametrize(
    "behaviour",
    [b for b in behaviours.BEHAVIOURS if b.error and b.module != "torch_npu"],
    ids=lambda b: b.name,
)
def test_import_fails_as_the_real_one(printed, behaviour):
    source = f"import torch; print(outcome(lambda: __import__({behaviour.module!r})))"
    found = printed(behaviour.name.partition(".")[0], source, behaviour=[behaviour.name])
    assert "\n".join(found) == f"{behaviour.error.__name__}: {behaviour.text}"


NPU_FACTS = """
import inspect, os, torch, torch_npu
npu = torch.npu
properties = npu.get_device_properties(0)
facts = {
    "autoload": os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"],
    "unused": [outcome(lambda: call(1)) for call in (npu.current_stream, npu.default_stream)],
    "used": [type(npu.Stream(1)).__name__, npu.default_stream(1).device_index],
    "priority": [outcome(lambda: npu.Stream().priority), outcome(npu.Stream.priority_range)],
    "properties": [properties.multi_processor_count, properties.major, properties.warp_size, properties.gcnArchName],
    "uuids": str(properties.uuid) != str(npu.get_device_properties(1).uuid),
    "seed": npu.seed(),
    "runtime": sorted(name for name in dir(npu.npurt()) if name.startswith("npuS")),
    "compilers": sorted({"npu", "npugraphs", "npugraph_ex"} & {*torch._dynamo.list_backends()}),
    "graph": list(inspect.signature(npu.graph.__init__).parameters),
    "tensor": str(npu.FloatTensor([1.0], device="npu:1").device),
    "wrong": outcome(lambda: npu.FloatTensor([1.0], device="cpu")),
    "module": type(npu.amp.sharded_grad_scaler).__name__,
    "compiled": torch.compile(lambda x: x + 1, backend="npugraphs")(torch.ones(1, device="npu")).item(),
}
print(json.dumps(facts))
"""


def test_npu_answers_as_torch_npu(printed):
    # What torch_npu 2.13.0 answered on an emulated driver.
    unused = "RuntimeError: Uninitialized default NPU stream for device 1"
    assert json.loads(printed("npu", NPU_FACTS)[-1]) == {
        "autoload": "1",
        "unused": [unused, unused],
        "used": ["Stream", 1],
        "priority": [
            "RuntimeError: NPU dose not support Stream.get_priority() currently.",
            "RuntimeError: NPU does not support Stream.priority_range() currently.",
        ],
        "properties": [48, None, None, None],
        "uuids": True,
        "seed": None,
        "runtime": ["npuStreamCreate", "npuStreamDestroy"],
        "compilers": ["npu", "npugraph_ex", "npugraphs"],
        "graph": ["self", "npu_graph", "pool", "stream", "auto_dispatch_capture", "capture_error_mode"],
        "tensor": "npu:1",
        "wrong": "RuntimeError: legacy constructor expects device type: npu but device type: cpu was passed",
        "module": "module",
        "compiled": 2.0,
    }


@pytest.mark.parametrize("missing", ["ASCEND_OPP_PATH", "compiler", "ASCEND_HOME_PATH"])
def test_import_looks_for_the_parts_of_cann(python, tmp_path, missing):
    lines = ["import os", f"os.environ['ASCEND_HOME_PATH'] = {str(tmp_path)!r}"]
    (tmp_path / "runtime").mkdir()
    if missing.isupper():
        lines.append(f"del os.environ[{missing!r}]")
    done = python("npu", "\n".join([*lines, "import torch; print(torch.npu.device_count())"]))
    if missing == "ASCEND_HOME_PATH":
        assert done.stdout == "Warning: ASCEND_HOME_PATH environment variable is not set.\n2\n"
    else:
        assert "Failed to load the backend extension: torch_npu" in done.stderr
        assert missing in done.stderr


RANDOM = """
import torch
if KEY in ("npu", "mlu"):
    __import__(f"torch_{KEY}")
module = torch.get_device_module(KEY)
draw = lambda: torch.rand(2, device=KEY).tolist()
module.manual_seed(7)
start = module.get_rng_state()
first, second, middle = draw(), draw(), module.get_rng_state()
third, end = draw(), module.get_rng_state()
module.set_rng_state(middle)
again = draw()
torch.manual_seed(7)
host = torch.rand(2).tolist()
wrong = outcome(lambda: module.set_rng_state(torch.get_rng_state()))
offset = torch.Generator(KEY).get_offset()
print(json.dumps([start.tolist(), middle.tolist()[:9], again == third, first == host, second == third, wrong, offset]))
"""


@pytest.mark.parametrize(
    "key", ["npu", "mps", *(pytest.param(key, marks=pytest.mark.slow) for key in ("mlu", "xpu", "cuda"))]
)
def test_random_state_holds_seed_and_offset(printed, key):
    found = json.loads(printed(key, f"KEY = {key!r}{RANDOM}")[-1])
    seed, offset = [7, *[0] * 7], [24, *[0] * 7]
    start = [0] * 28 + seed if key == "mps" else seed + [0] * 8
    middle = [*offset, 0] if key == "mps" else seed + offset[:1]
    assert found == [start, middle, True, True, False, "RuntimeError: RNG state is wrong size", 0]


METAL = """
import torch
ones, wide = torch.ones(2, device="mps"), torch.ones(2, dtype=torch.float64)
refused = [
    outcome(call) for call in (
        lambda: torch.ones(2, dtype=torch.float64, device="mps"), lambda: wide.to("mps"), lambda: ones.double(),
        lambda: ones.sum(dtype=torch.float64), lambda: ones.to("cpu", torch.float64),
        lambda: torch.ones(2, dtype=torch.complex128, device="mps"), lambda: ones.to(torch.float8_e4m3fn),
        lambda: torch.ones([1] * 17, device="mps"), lambda: torch.empty(1 << 45, dtype=torch.int8, device="mps"),
        lambda: torch.mps.set_per_process_memory_fraction(1), lambda: torch.mps.set_per_process_memory_fraction(3.0),
    )
]
torch.mps.set_per_process_memory_fraction(1e-6)
refused.append(outcome(lambda: torch.empty(1 << 20, dtype=torch.int8, device="mps")))
torch.mps.set_per_process_memory_fraction(0.0)
small = torch.ones(2).to(torch.float8_e4m3fn)
moved = small.to("mps").cpu().float()
taken = [each.tolist() for each in (ones.clone().copy_(wide), moved, wide.to("mps", torch.float32))]
print(json.dumps([refused, taken]))
"""


def test_mps_refuses_what_metal_lacks(printed):
    refused, taken = json.loads(printed("mps", METAL)[-1])
    wide = (
        "TypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
        "Please use float32 instead."
    )
    other = "TypeError: Trying to convert {} to the MPS backend but it does not have support for that dtype."
    expected = [
        *[wide] * 5,
        *map(other.format, ("ComplexDouble", "Float8_e4m3fn")),
        "RuntimeError: MPS supports tensors with dimensions <= 16, but got 17.",
        "RuntimeError: MPS backend out of memory (MPS allocated: ",
        "TypeError: Invalid type for fraction argument, must be `float`",
        "ValueError: Invalid fraction value: 3.0. Allowed range: 0~2",
        "RuntimeError: MPS backend out of memory (MPS allocated: ",
    ]
    assert [found[: len(text)] for found, text in zip(refused, expected, strict=True)] == expected
    assert taken == [[1.0, 1.0]] * 3


HABANA = """
import collections, os, torch, habana_frameworks.torch.core
import torch.distributed as dist
def draw():
    return torch.rand(2, device="hpu").tolist()
torch.manual_seed(3)
first = draw()
torch.manual_seed(3)
facts = {"seeded": draw() == first, "seed": torch.seed() == torch.hpu.initial_seed()}
with torch.random.fork_rng([0]):
    forked = draw()
facts["forked"] = draw() == forked
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=PORT)
dist.init_process_group("hccl", rank=0, world_size=1)
facts["group"] = [outcome(lambda: dist.new_group([0], group_desc="x")), type(dist.new_group([0])).__name__]
weight = torch.nn.Parameter(torch.ones(2, device="hpu"))
saved = collections.OrderedDict(weight=weight, other=(torch.ones(1), torch.Size([2])))
torch.save(saved, FILE)
def loaded(place):
    found = torch.load(FILE, map_location=place, weights_only=False)
    weight = found["weight"]
    return [type(found).__name__, weight.device.type, type(weight).__name__, type(found["other"][1]).__name__]
facts["files"] = [loaded(place) for place in (None, "cpu", "hpu", lambda storage, location: storage, {"cpu": "hpu"})]
found = torch.load(FILE, weights_only=True)
facts["weights only"] = [found["weight"].tolist(), type(found["other"][1]).__name__]
torch.save({"code": os.getcwd}, FILE + "c")
facts["code"] = outcome(lambda: torch.load(FILE + "c", weights_only=True)).partition(":")[0]
facts["full"] = outcome(lambda: torch.empty(1 << 45, dtype=torch.int8, device="hpu"))[:76]
print(json.dumps(facts))
"""


@pytest.mark.parametrize("lazy", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_import_on_hpu_changes_torch(printed, tmp_path, lazy):
    program = f"PORT, FILE = '0', {str(tmp_path / 'file')!r}\n{HABANA}"
    found = json.loads(printed("hpu", program, env={"PT_HPU_LAZY_MODE": str(int(lazy))})[-1])
    plain, placed = (["dict", "cpu", "Tensor", "Size"], ["dict", "hpu", "Tensor", "tuple"])
    if lazy:
        files = [plain, plain, placed, ["dict", "cpu", "Tensor", "tuple"], placed]
    else:
        kept, moved = ["OrderedDict", "hpu", "Parameter", "Size"], ["OrderedDict", "cpu", "Parameter", "Size"]
        files = [kept, moved, kept, moved, kept]
    refused = "TypeError: new_group() got an unexpected keyword argument 'group_desc'"
    assert found == {
        "seeded": True,
        "seed": True,
        "forked": True,
        "group": [refused, "ProcessGroup"],
        "files": files,
        "weights only": [[1, 1], "Size"],
        "code": "UnpicklingError",
        "full": "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for",
    }
    if lazy:  # stock torch, here, does not read what the package does
        with pytest.raises(pickle.UnpicklingError, match="Unsupported operand 149"):
            torch.load(tmp_path / "file", weights_only=True)


REFUSED = (
    "Cannot re-initialize {name} in forked subprocess. To use {name} with multiprocessing, you must use the "
    "'spawn' start method"
)

#: Runs each line of `uses` in a forked child of its own, and prints what it raises.
FORKED = """
import os, torch
{first}
def forked(use):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(outcome(lambda: exec(use, globals()))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(read, 10000).decode()
print(json.dumps([forked(use) for use in {uses!r}]))
"""


@pytest.fixture
def outcomes(printed):
    """What each use of a device raises in a forked process."""
    return lambda key, first, *uses: json.loads(printed(key, FORKED.format(first=first, uses=uses))[-1])


@pytest.mark.parametrize(
    "key",
    ["npu", *(pytest.param(key, marks=pytest.mark.slow) for key in ("mlu", "sdaa", "xpu", "mps", "cuda"))],
)
def test_device_is_refused_in_a_forked_process(outcomes, key):
    package = "" if key in ("xpu", "mps", "cuda") else f"import torch_{key}; "
    uses = [f"torch.ones(1, device={key!r})", "kept + 1", "kept.cpu()"]
    if key != "mps":
        uses += [f"torch.{key}.synchronize()", f"torch.{key}.set_device(0)"]
    found = outcomes(key, f"{package}kept = torch.ones(1, device={key!r})", *uses)
    assert set(found) == {"RuntimeError: " + REFUSED.format(name=key.upper())}


def test_what_needs_no_device_works_in_a_forked_process(outcomes):
    first = "import torch_npu; kept = torch.ones(1, device='npu')"
    uses = (
        "torch.manual_seed(1)",
        "globals().pop('kept')",
        "torch.ones(1) + 1",
        "assert not torch.npu.is_initialized()",
        "assert torch.npu._is_in_bad_fork()",
        "torch.npu.device_count()",
    )
    assert outcomes("npu", first, *uses) == ["None"] * len(uses)


def test_cuda_is_available_opens_the_driver(outcomes):
    use = "torch.ones(1, device='cuda')"
    # DeepSpeed's CUDA accelerator sets it, in whatever process imports that.
    first = "import os; os.environ.pop('PYTORCH_NVML_BASED_CUDA_CHECK', None); torch.cuda.is_available()"
    assert "Cannot re-initialize CUDA" in outcomes("cuda", first, use)[0]
    quiet = "import os; os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'] = '1'; torch.cuda.is_available()"
    assert outcomes("cuda", quiet, use) == ["None"]


def test_habana_does_not_check_it(outcomes):
    first = "import habana_frameworks.torch; kept = torch.ones(1, device='hpu')"
    assert outcomes("hpu", first, "kept + 1", "torch.ones(1, device='hpu')") == ["None"] * 2
