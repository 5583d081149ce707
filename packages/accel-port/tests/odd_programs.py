# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs that use Python, and torch, in ways that a port has to survive; each runs on the CPU, unless it says so."""

# ruff: noqa: E501
# fmt: off

PROGRAMS = {
    "walrus": """\
import torch
if (ok := torch.cuda.is_available()) and (n := torch.cuda.device_count()) > 0:
    print("devices", n)
else:
    print("none", ok)
while (d := torch.device("cuda" if ok else "cpu")).type == "nothing":
    pass
print(d)
""",
    "match": """\
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
match device.type:
    case "cuda":
        print("gpu")
    case "cpu":
        print("cpu")
match {"cuda": 1, **{"a": 2}}:
    case {"cuda": x, **rest}:
        print(x, rest)
""",
    "nested fstring": """\
import torch
rank = 0
print(f"{'cuda' if torch.cuda.is_available() else 'cpu'} and {f'{rank}'}")
if torch.cuda.is_available():
    d = f"cuda:{int(f'{rank}')}"
    print(f"using {torch.cuda.current_device():>3} of {torch.cuda.device_count()!r}")
""",
    "type comments": """\
import torch
x = torch.ones(2)  # type: torch.cuda.FloatTensor
def f(a,  # type: torch.cuda.LongTensor
      b):
    # type: (...) -> torch.cuda.FloatTensor
    return a + b
print(f(x, x))
""",
    "annotations": """\
import torch
def f(s: torch.cuda.Stream | None = None, e: "torch.cuda.Event" = None, t: torch.cuda.FloatTensor = None) -> torch.cuda.Stream:
    return s
print(f())
""",
    "async": """\
import asyncio, torch
async def place(x):
    async with asyncio.Lock():
        if torch.cuda.is_available():
            x = x.cuda(non_blocking=True)
            await asyncio.to_thread(torch.cuda.synchronize)
    return x
print(asyncio.run(place(torch.ones(2))))
""",
    "lambda defaults": """\
import torch
to = lambda x, device=torch.device("cuda" if torch.cuda.is_available() else "cpu"): x.to(device)
go = lambda x, n=torch.cuda.device_count(): x * n
print(to(torch.ones(2)), go(3))
""",
    "class body": """\
import torch
class Config:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cuda = torch.cuda.is_available()
    workers = 4 if cuda else 0
    n_gpu = torch.cuda.device_count() if cuda else 0
    names = [d for d in (device, device)]
print(Config.device, Config.cuda, Config.workers, Config.n_gpu, Config.names)
""",
    "star": """\
from torch import *
from torch.nn import *
import torch
x = ones(2)
if torch.cuda.is_available():
    x = x.cuda()
print(x)
""",
    "try import": """\
try:
    import torch
    HAS = torch.cuda.is_available()
except ImportError:
    torch = None
    HAS = False
try:
    from torch.cuda.amp import autocast, GradScaler
except ImportError:
    autocast = None
try:
    import torch_npu
except ImportError:
    torch_npu = None
print(HAS, autocast is None, torch_npu)
if HAS:
    torch.cuda.synchronize()
""",
    "half ported": """\
import torch
from deepspeed.accelerator import get_accelerator
device = get_accelerator().device_name()
x = torch.ones(2, device=device)
if torch.cuda.is_available():
    torch.cuda.empty_cache()
print(x, get_accelerator().communication_backend_name())
""",
    "half ported var": """\
import torch
import deepspeed
from deepspeed.accelerator import get_accelerator as acc
get_accelerator = acc
if torch.cuda.is_available():
    torch.cuda.synchronize()
print(acc().device_name())
""",
    "half ported local": """\
import torch
def f(x):
    from deepspeed.accelerator import get_accelerator
    return x.to(get_accelerator().device_name())
def g(x):
    return x.cuda() if torch.cuda.is_available() else x
print(f(torch.ones(1)), g(torch.ones(1)))
""",
    "get_accelerator param": """\
import torch
def f(get_accelerator, x):
    return x.cuda() if torch.cuda.is_available() else get_accelerator(x)
print(f(lambda x: x, torch.ones(1)))
""",
    "shadow torch": """\
import torch
def f(torch):
    return torch.cuda.is_available()
class Fake:
    class cuda:
        @staticmethod
        def is_available(): return "fake"
print(f(Fake))
""",
    "shadow comprehension": """\
import torch
print([cuda for cuda in ("cuda", "cpu")])
print({cuda: 1 for cuda in range(2)}, [torch for torch in range(2)])
""",
    "alias cycle": """\
import torch
a = None
def f():
    global a, b
    a = b
b = a
def g():
    b = a
    a = b
t = torch.cuda
print(t.is_available())
""",
    "decorator": """\
import torch, functools
from torch.cuda.amp import custom_fwd, custom_bwd
def needs(flag):
    return lambda f: f
@needs(torch.cuda.is_available())
def f(): return 1
@functools.cache
def g(): return torch.cuda.is_available()
class F(torch.autograd.Function):
    @staticmethod
    @custom_fwd
    def forward(ctx, x): return x * 2
    @staticmethod
    @custom_bwd
    def backward(ctx, g): return g * 2
print(f(), F.apply(torch.ones(1)))
""",
    "skipif": """\
import unittest, torch
class T(unittest.TestCase):
    @unittest.skipIf(not torch.cuda.is_available(), "needs cuda")
    def test_a(self): assert torch.ones(1).cuda().is_cuda
    @unittest.skipUnless(torch.cuda.device_count() >= 2, "needs two")
    def test_b(self): pass
r = unittest.TextTestRunner(stream=open("/dev/null", "w")).run(unittest.defaultTestLoader.loadTestsFromTestCase(T))
print(len(r.skipped), len(r.failures))
""",
    "conditional is_available": """\
import torch
check = torch.cuda.is_available if hasattr(torch, "cuda") else (lambda: False)
print(check())
use = bool(torch.cuda.is_available()) and not False
print(use, int(torch.cuda.is_available()), str(torch.cuda.is_available()), not torch.cuda.is_available())
print(torch.cuda.is_available() == False, [torch.cuda.is_available()], torch.cuda.is_available() or "no", -torch.cuda.is_available())
assert not torch.cuda.is_available(), "gpu"
""",
    "ternaries": """\
import torch
gpu = None
d1 = torch.device(f"cuda:{gpu}" if gpu is not None and torch.cuda.is_available() else "cpu")
d2 = "cpu" if gpu is None or not torch.cuda.is_available() else f"cuda:{gpu}"
d3 = ("cpu", "cuda")[torch.cuda.is_available()]
d4 = {True: "cuda", False: "cpu"}[torch.cuda.is_available()]
d5 = torch.cuda.is_available() and "cuda" or "cpu"
d6 = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
d7 = "mps" if torch.backends.mps.is_available() else "cuda" if torch.cuda.is_available() else "cpu"
print(d1, d2, d3, d4, d5, d6, d7)
""",
    "integers": """\
import torch, os
local_rank = int(os.environ.get("LOCAL_RANK", 0))
def go(x):
    return x.to(local_rank), torch.zeros(1, device=local_rank), torch.device(local_rank), torch.device("cuda", index=local_rank), torch.device(type="cuda", index=0)
print(local_rank)
""",
    "ddp": """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
def wrap(model, rank, gpu, args, device):
    a = DDP(model, device_ids=[rank])
    b = DDP(model, [gpu], gpu, find_unused_parameters=True)
    c = torch.nn.parallel.DistributedDataParallel(
        model,
        device_ids=[args.local_rank] if torch.cuda.is_available() else None,
        output_device=args.local_rank,  # here
    )
    d = DDP(model, device_ids=None)
    e = DDP(module=model, device_ids=[device.index], broadcast_buffers=False)
    kw = dict(device_ids=[rank])
    f = DDP(model, **kw)
    return a, b, c, d, e, f
print(1)
""",
    "streams none": """\
import torch
s = torch.cuda.Stream() if torch.cuda.is_available() else None
with torch.cuda.stream(s):
    x = torch.ones(1)
e = torch.cuda.Event(enable_timing=True) if torch.cuda.is_available() else None
if e: e.record()
print(x)
""",
    "getattr": """\
import torch, importlib
print(getattr(torch, "cuda").is_available(), getattr(torch.cuda, "is_available")(), hasattr(torch, "cuda"))
m = importlib.import_module("torch.cuda")
print(m.is_available(), torch.__dict__["cuda"].device_count())
""",
    "semicolons": """\
import torch; import os; x = torch.ones(1); torch.cuda.manual_seed(1); y = 2
if torch.cuda.is_available(): x = x.cuda(); torch.cuda.synchronize()
for i in range(1): torch.cuda.manual_seed_all(i)
if True: torch.cuda.empty_cache()
print(x)
""",
    "backslash": """\
import torch
ok = torch.cuda.is_available() \\
    and torch.cuda.device_count() \\
    > 1
x = torch \\
    .cuda \\
    .is_available()
device = "cuda" \\
    if x \\
    else "cpu"
print(ok, x, device)
""",
    "implicit concat": """\
import torch
d = torch.device("cu" "da" if torch.cuda.is_available() else "c" "pu")
n = "cuda" ":0"
r = r"cuda"; b = b"cuda"; u = u"cuda"
print(d, n, r, b, u)
""",
    "parens": """\
import torch
x = (torch.ones(1))
if (torch.cuda.is_available()):
    x = (x).cuda((0))
    x = x.cuda(  # where
        device = 0,  # zero
    )
print((("cuda") if (torch.cuda.is_available()) else ("cpu")))
print(x if not (torch.cuda.is_available()) else x.cuda())
""",
    "genexp": """\
import torch
xs = [torch.ones(1)]
ys = tuple(x.cuda() if torch.cuda.is_available() else x for x in xs)
zs = {k: v.to("cuda" if torch.cuda.is_available() else "cpu") for k, v in {"a": xs[0]}.items()}
print(ys, zs, *[x.is_cuda for x in xs], any(x.is_cuda for x in xs))
""",
    "own to": """\
import torch
class Batch:
    def __init__(self, x): self.x = x
    def cuda(self, *a, **k):
        self.x = self.x.cuda(*a, **k)
        return self
    @property
    def is_cuda(self): return self.x.is_cuda
    def pin_memory(self):
        self.x = self.x.pin_memory()
        return self
b = Batch(torch.ones(1))
print(b.is_cuda)
if torch.cuda.is_available(): b = b.cuda()
""",
    "env": """\
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
os.environ.setdefault("NCCL_DEBUG", "INFO")
import torch
print(os.environ.get("CUDA_LAUNCH_BLOCKING", "no"), "CUDA_VISIBLE_DEVICES" in os.environ)
""",
    "amp": """\
import torch
from torch.cuda import amp
from torch.cuda.amp import autocast as ac, GradScaler
scaler = GradScaler(enabled=torch.cuda.is_available())
s2 = torch.cuda.amp.GradScaler(65536.0, enabled=True) if torch.cuda.is_available() else None
m = torch.nn.Linear(2, 2)
with ac(enabled=False), amp.autocast():
    y = m(torch.ones(1, 2))
with torch.autocast("cuda", enabled=torch.cuda.is_available()):
    y = m(torch.ones(1, 2))
with torch.autocast(device_type="cuda", dtype=torch.float16):
    z = m(torch.ones(1, 2))
@ac()
def step(x): return m(x)
print(y.dtype, z.dtype, step(torch.ones(1, 2)).dtype, scaler.is_enabled(), torch.is_autocast_enabled())
""",
    "seed": """\
import torch, random
def seed_everything(seed):
    random.seed(seed); torch.manual_seed(seed)
    torch.cuda.manual_seed(seed); torch.cuda.manual_seed_all(seed)
def other(seed):
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed + 1)
    return torch.cuda.initial_seed() if torch.cuda.is_available() else None
def lam(): (torch.cuda.manual_seed(3), print("x"))
seed_everything(1); a = torch.rand(1); other(1); lam(); b = torch.rand(1)
r = torch.cuda.get_rng_state() if torch.cuda.is_available() else torch.get_rng_state()
print(a, b, r.sum())
""",
    "memory": """\
import torch
def report():
    a = torch.cuda.max_memory_allocated() / 1024 ** 2
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info() if torch.cuda.is_available() else (0, 0)
    return f"{a:.1f} {torch.cuda.memory_allocated() / 2:.2f}", free, total
print(len(report()))
p = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
if p: print(p.total_memory, p.name)
""",
    "current_device": """\
import torch
def dev():
    return torch.cuda.current_device() if torch.cuda.is_available() else torch.device("cpu")
def idx():
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"
print(torch.ones(1).to(dev()), idx())
class A:
    def __init__(self): self.local = torch.cuda.current_device() if torch.cuda.is_available() else -1
    def go(self, x): return x.to(self.local) if self.local >= 0 else x
print(A().go(torch.ones(1)))
""",
    "load": """\
import torch, io
f = io.BytesIO(); torch.save({"a": torch.ones(1)}, f); f.seek(0)
print(torch.load(f, map_location=lambda s, l: s.cuda() if torch.cuda.is_available() else s)); f.seek(0)
print(torch.load(f, map_location={"cuda:0": "cpu"})); f.seek(0)
print(torch.load(f, "cuda" if torch.cuda.is_available() else "cpu")); f.seek(0)
loc = "cuda:0" if torch.cuda.is_available() else None
print(torch.load(f, map_location=loc))
""",
    "kwargs": """\
import torch
cfg = {"device": "cuda" if torch.cuda.is_available() else "cpu", "dtype": torch.float32}
opts = dict(device="cuda", pin_memory=True)
print(torch.ones(1, **cfg), sorted(opts))
""",
    "argparse": """\
import argparse, torch
p = argparse.ArgumentParser()
p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
p.add_argument("--no-cuda", action="store_true")
p.add_argument("--gpu", type=int, default=0)
p.add_argument("--backend", default="nccl", choices=["nccl", "gloo"])
args = p.parse_args([])
args.cuda = not args.no_cuda and torch.cuda.is_available()
device = torch.device("cuda:%d" % args.gpu if args.cuda else "cpu")
kwargs = {"num_workers": 1, "pin_memory": True} if args.cuda else {}
if args.device == "cuda": print("gpu")
print(args.device, args.cuda, device, kwargs)
""",
    "global device": """\
import torch
device = None
def init():
    global device
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
init()
print(torch.ones(1, device=device), device.type == "cuda", device.type != "cuda", "cuda" in str(device), str(device).startswith("cuda"))
if device.type == "cuda":
    print("fast")
elif device.type == "cpu":
    print("slow")
""",
    "typed": """\
import torch
use = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if use else torch.FloatTensor
LongTensor = torch.cuda.LongTensor if use else torch.LongTensor
x = Tensor(2, 3).fill_(1.0); y = LongTensor([1, 2]); z = torch.ones(1).type(Tensor)
def f(T=Tensor): return T(1)
print(x, y, z, f().shape)
""",
    "typed loop": """\
import torch
n = 3
for T in (torch.FloatTensor, torch.LongTensor):
    print(T(n).shape)
F = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
print(F(n).shape, F([n]).tolist(), F().shape, F(n, n).shape)
""",
    "print only": """\
import torch
print("CUDA:", torch.cuda.is_available(), torch.version.cuda, torch.cuda.device_count())
print("cuda" + ":" + str(0), "torch.cuda.is_available()")
""",
    "try oom": """\
import torch
try:
    raise RuntimeError("CUDA out of memory. x")
except torch.cuda.OutOfMemoryError as e:
    print("oom")
except RuntimeError as e:
    print("out of memory" in str(e), "CUDA out of memory" in str(e))
""",
    "loop del": """\
import torch
def f(xs):
    out = []
    for x in xs:
        if torch.cuda.is_available():
            x = x.cuda()
            torch.cuda.synchronize()
        out.append(x)
        del x
    else:
        torch.cuda.empty_cache()
    return out
print(f([torch.ones(1)]))
""",
    "generator": """\
import torch
g = torch.Generator(device="cuda" if torch.cuda.is_available() else "cpu").manual_seed(1)
print(torch.rand(1, generator=g))
def stream():
    with torch.no_grad():
        yield torch.cuda.is_available()
print(list(stream()))
""",
    "sync timer": """\
import time, torch
class Timer:
    def __enter__(self):
        if torch.cuda.is_available(): torch.cuda.synchronize()
        self.t = time.time(); return self
    def __exit__(self, *a):
        torch.cuda.synchronize() if torch.cuda.is_available() else None
        self.dt = time.time() - self.t
with Timer() as t: pass
print(t.dt >= 0)
""",
    "return else": """\
import torch
def get_device(index=0):
    if torch.cuda.is_available():
        return torch.device("cuda", index)
    return torch.device("cpu")
def try_gpu(i=0):
    if torch.cuda.device_count() >= i + 1:
        return torch.device(f"cuda:{i}")
    return torch.device("cpu")
def try_all():
    devices = [torch.device(f"cuda:{i}") for i in range(torch.cuda.device_count())]
    return devices if devices else [torch.device("cpu")]
print(get_device(), try_gpu(), try_gpu(10), try_all())
""",
    "dataparallel": """\
import torch
m = torch.nn.Linear(1, 1)
if torch.cuda.device_count() > 1:
    m = torch.nn.DataParallel(m)
n = max(1, torch.cuda.device_count())
k = torch.cuda.device_count() or 1
print(type(m).__name__, n, k, 32 // max(torch.cuda.device_count(), 1), "many" if torch.cuda.device_count() else "none")
if not torch.cuda.device_count(): print("no gpu")
ids = list(range(torch.cuda.device_count()))
print(ids, torch.cuda.device_count() == 0, torch.cuda.device_count() < 1, 0 < torch.cuda.device_count())
""",
    "pin": """\
import torch
from torch.utils.data import DataLoader
l = DataLoader([torch.ones(1)], pin_memory=torch.cuda.is_available(), num_workers=2 if torch.cuda.is_available() else 0, shuffle=torch.cuda.is_available())
for b in l: print(b)
x = torch.ones(1).pin_memory() if torch.cuda.is_available() else torch.ones(1)
print(x)
""",
    "multi import": """\
import os, torch.cuda, sys
import torch.cuda as tc
from torch import cuda, nn
from torch.cuda import is_available, synchronize as sync, Stream
print(tc.is_available(), cuda.is_available(), is_available(), torch.cuda.is_available())
if is_available(): sync()
""",
    "all": """\
import torch
from torch.cuda import is_available
from torch.cuda.amp import GradScaler
__all__ = ["is_available", "GradScaler"]
print(is_available(), sorted(n for n in __all__ if n in globals()))
""",
    "no torch name": """\
from torch import ones, cuda as c, device as D
x = ones(1).to(D("cuda:0") if c.is_available() else D("cpu"))
print(x)
""",
    "reassigned": """\
import torch
device = "cuda"
device = "cpu"
x = torch.ones(1, device=device)
d = 0
y = x.to("cpu" if d == 0 else d)
print(x, y)
""",
    "inner torch": """\
def main():
    import torch
    if torch.cuda.is_available():
        torch.cuda.set_device(0)
    print(torch.ones(1).to("cuda" if torch.cuda.is_available() else "cpu"))
main()
""",
    "exec string": '''\
import torch
code = """
if torch.cuda.is_available():
    x = 1
"""
exec(code)
print(eval("torch.cuda.is_available()"), "cuda" if torch.cuda.is_available() else "cpu")
''',
    "del global": """\
import torch
cuda = torch.cuda
if cuda.is_available():
    cuda.synchronize()
del cuda
def f():
    cuda = True
    return "cuda" if cuda else "cpu"
print(torch.cuda.is_available())
""",
    "dict dispatch": """\
import torch
BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
backend = BACKENDS[device.type]
fn = {"cuda": torch.cuda.synchronize, "cpu": lambda: None}[device.type]
fn()
sync = getattr(torch, device.type).synchronize
print(backend, device)
""",
    "posonly": """\
import torch
def f(x, /, device="cuda" if torch.cuda.is_available() else "cpu", *, n=torch.cuda.device_count(), **k): return x.to(device), n
print(f(torch.ones(1)))
""",
    "profiler": """\
import torch
from torch.profiler import profile, ProfilerActivity as PA
acts = [PA.CPU] + ([PA.CUDA] if torch.cuda.is_available() else [])
with profile(activities=acts) as p: torch.ones(1)
k = "cuda_time_total" if torch.cuda.is_available() else "cpu_time_total"
print(bool(p.key_averages().table(sort_by=k)))
""",
    "chain assign": """\
import torch
a = b = torch.device("cuda" if torch.cuda.is_available() else "cpu")
use_cuda = cuda = torch.cuda.is_available()
x, device = torch.ones(1), "cuda" if cuda else "cpu"
(y := x.to(device))
print(a, b, use_cuda, y)
""",
    "format spec": '''\
import torch
w = 5
print(f"{torch.cuda.device_count():{w}} {torch.cuda.is_available()!s:>{w}} {'cuda' if torch.cuda.is_available() else 'cpu':>{w}}")
print(f"""{
    torch.cuda.is_available()
}""")
''',
    "fork rng": """\
import torch
with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
    torch.manual_seed(1); a = torch.rand(1)
print(a)
""",
    "fallback amp": """\
import torch
try:
    from torch.cuda.amp import autocast
except ImportError:
    autocast = None
m = torch.nn.Linear(1, 1)
with autocast(enabled=False):
    print(m(torch.ones(1, 1)).dtype)
try:
    from torch.amp import GradScaler
except ImportError:
    from torch.cuda.amp import GradScaler
print(GradScaler(enabled=False).is_enabled())
""",
    "amp own": """\
import torch
m = torch.nn.Linear(2, 2)
x = torch.ones(1, 2)
for e in (True, False):
    with torch.autocast("cuda", torch.float16, e):
        y = m(x)
    with torch.amp.autocast("cuda", enabled=e, dtype=torch.bfloat16): z = m(x)
    with torch.autocast(enabled=e, device_type="cuda"): w = m(x)
    with torch.autocast("cuda", torch.bfloat16): v = m(x)
    print(y.dtype, z.dtype, w.dtype, v.dtype)
print(torch.amp.GradScaler("cuda").is_enabled(), torch.amp.GradScaler().is_enabled(), torch.amp.GradScaler("cuda", 2.0).is_enabled(), torch.amp.GradScaler(device="cuda", enabled=False).is_enabled())
""",
    "values": """\
import torch
class C:
    def __init__(self, device="cuda", name="x"): self.device = device
    def go(self, x): return x.to(self.device if torch.cuda.is_available() else "cpu")
def pick(flag=False): return "cuda:0" if flag else "cpu"
DEVICE = torch.device("cuda")
print(C().go(torch.ones(1)), pick())
""",
    "decorated loop": """\
import torch
for d in ["cpu"] + (["cuda"] if torch.cuda.is_available() else []):
    print(d, torch.ones(1).to(d))
devices = [torch.device("cpu")]
devices += [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
for d in devices: print(d)
""",
}
