"""Fixes around a job's models: each took effect, as the job itself sees it, and left its results usable."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from applied_jobs import GRAPHS_ALONE, run
from findwall.agent.step_ends.forward import wrap_call
from findwall.agent.step_ends.step_gate import Gate
from findwall.apply.applying import Effect
from findwall.apply.model_calls import Model, was_taken_out
from findwall.fixes import all_fixes
from findwall.fixes.precision.autocast_seen import kept_seen
from findwall.fixes.precision.autocasting import Span, autocast_models
from findwall.fixes.stack_patch import patch_of
from findwall.model.applied import AppliedFix
from findwall.model.arms import ArmReport

DENSE = """
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        h = self.first(x)
        inner.add(str(h.dtype))
        return self.last(h.relu())


inner, losses, during, after = set(), [], set(), set()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
x, y = torch.randn(64, 16), torch.rand(64, 4)
for step in range(12):
    out = model(x)
    during.add(torch.is_autocast_enabled("cpu"))
    bce, mse = nn.functional.binary_cross_entropy, nn.functional.mse_loss
    loss = bce(out.sigmoid(), y) if step % 2 else mse(out, y)
    optimizer.zero_grad()
    loss.backward()
    after.add(torch.is_autocast_enabled("cpu"))
    optimizer.step()
    losses.append(loss.item())
    if step == 5:
        with torch.no_grad():
            model(x).numpy()
        with torch.inference_mode():
            model(x).numpy()
        after.add(torch.is_autocast_enabled("cpu"))
print("inner", *sorted(inner))
print("out", out.dtype, loss.dtype, model.first.weight.grad.dtype)
print("autocast", during, after)
print("finite", all(map(torch.isfinite, torch.tensor(losses))), losses[10] < losses[0])
"""
# What the compiler traces may not count: it would be part of the graph.
COMPILED = DENSE.replace("        inner.add(str(h.dtype))\n", "")

IMAGES = """
from types import SimpleNamespace

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Flatten(), nn.Linear(288, 2))
model.config = SimpleNamespace(_attn_implementation="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
given = set()
model[0].register_forward_pre_hook(lambda _, args: given.add(args[0].stride()))
for _ in range(4):
    loss = model(torch.randn(5, 3, 8, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.empty_cache()
print("weight", model[0].weight.stride(), "given", *given)
print("benchmark", torch.backends.cudnn.benchmark)
"""

ATTENTION = """
from types import SimpleNamespace

import torch
from torch import nn


class Pretrained(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation="eager")
        self.qkv = nn.Linear(8, 24)

    def set_attn_implementation(self, name):
        self.config._attn_implementation = name

    def forward(self, x):
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        if self.config._attn_implementation == "sdpa":
            return nn.functional.scaled_dot_product_attention(q, k, v)
        return (q @ k.mT / 8**0.5).softmax(-1) @ v


model = Pretrained().double()
for _ in range(3):
    model(torch.randn(2, 6, 8).double()).sum().backward()
print("implementation", model.config._attn_implementation)
"""


def test_autocast_spans_the_model_and_its_loss_and_ends_with_the_backward_pass(tmp_path: Path) -> None:
    found, said = run(tmp_path, "bf16-autocast,sdpa", DENSE)
    assert found["sdpa"] == {"seen": "", "trouble": "attention that a job writes out needs an edit"}
    assert found["bf16-autocast"] == {
        "seen": "2 products ran in bfloat16 in the first call",
        "trouble": "",
    }
    assert "inner torch.bfloat16\n" in said  # with gradients, without, and in inference mode
    assert "out torch.float32 torch.float32 torch.float32" in said
    assert "autocast {True} {False}" in said and "finite True True" in said


UNUSED = """
import torch
from torch import nn


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x):
        return self.left(x), {"right": self.right(x)}


def product():
    return str((torch.ones(4, 4) @ torch.ones(4, 4)).dtype).removeprefix("torch.")


def look(word):
    print(word, product(), torch.is_autocast_enabled("cpu"))


def forward_only():
    out = model(x)
    print("follows", product())


def broken():
    loss = model(x)[0].sum()
    raise ValueError(loss)


x, model = torch.ones(8, 16), Pair()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    _, out = model(x)
    print("loss", product())
    out["right"].mean().backward()
    optimizer.step()
model.eval()
out = model(x)
look("evaluation")
model.train()
forward_only()
look("unused")
try:
    broken()
except ValueError:
    pass
look("raised")
out = model(x)
model.eval()
look("mode")
model.train()
out = model(x)
with torch.autocast("cpu", enabled=False):
    print("own", product())
    out[0].float().mean().backward()
look("after")
_, out = model(x)
print("loss", product())
"""


def test_autocast_is_off_where_no_loss_comes_of_a_model_any_more(tmp_path: Path) -> None:
    """Evaluated with gradients, called for nothing, stopped by an error, or inside an autocast of the job."""
    found, said = run(tmp_path, "bf16-autocast", UNUSED)
    assert "products ran in bfloat16" in found["bf16-autocast"]["seen"]
    assert found["bf16-autocast"]["trouble"] == ""
    loss = ["loss bfloat16"]
    off = [f"{word} float32 False" for word in ("unused", "raised", "mode", "after")]
    off.insert(-1, "own float32")
    assert said.splitlines() == [*loss * 3, "evaluation float32 False", "follows bfloat16", *off, *loss]


def test_nothing_of_it_is_there_unless_it_is_asked_for(tmp_path: Path) -> None:
    _, said = run(tmp_path, "", DENSE + IMAGES)
    assert "inner torch.float32\n" in said and "autocast {False} {False}" in said
    assert "weight (27, 9, 3, 1) given (192, 64, 8, 1)" in said and "finite True True" in said


@pytest.mark.long
def test_autocast_stands_around_a_compiled_model_also_where_it_is_named_first(tmp_path: Path) -> None:
    found, said = run(tmp_path, "bf16-autocast,torch-compile", COMPILED)
    assert "bfloat16" in found["bf16-autocast"]["seen"] and not found["bf16-autocast"]["trouble"]
    assert "compiled graph" in found["torch-compile"]["seen"]
    assert "autocast {True} {False}" in said and "finite True True" in said


@pytest.mark.long
def test_a_compiler_that_times_kernels_is_another_mode_of_the_same(tmp_path: Path) -> None:
    found, said = run(tmp_path, "autotune-kernels", COMPILED)
    assert "compiled graph" in found["autotune-kernels"]["seen"] and "finite True True" in said


def test_autocast_is_seen_in_a_model_that_the_job_compiled(tmp_path: Path) -> None:
    job = COMPILED.replace("model = Net()", 'model = torch.compile(Net(), backend="aot_eager")')
    found, said = run(tmp_path, "bf16-autocast", job)
    assert "that the compiled code gives or keeps: in bfloat16" in found["bf16-autocast"]["seen"]
    assert "finite True True" in said


OWN_AUTOCAST = {
    "around": ("out = model(x)", "with {}: out = model(x)"),
    "inside": ("h = self.first(x)", "with {}: h = self.first(x)"),
}


def own_autocast(where: str, context: str) -> str:
    was, instead = OWN_AUTOCAST[where]
    return DENSE.replace(was, instead.format(context), 1).replace("out.sigmoid()", "out.float().sigmoid()")


def test_a_job_that_uses_autocast_itself_is_said_to(tmp_path: Path) -> None:
    job = own_autocast("around", "torch.autocast('cpu', torch.bfloat16)")
    found, _ = run(tmp_path, "bf16-autocast", job)
    assert found["bf16-autocast"]["trouble"] == "the job uses autocast itself"


def test_an_autocast_that_covers_a_part_leaves_the_rest_to_be_cast(tmp_path: Path) -> None:
    job = own_autocast("inside", "torch.autocast('cpu', torch.bfloat16)")
    found, said = run(tmp_path, "bf16-autocast", job)
    assert found["bf16-autocast"] == {
        "seen": "1 product ran in bfloat16 in the first call, beside those in the job's own autocast",
        "trouble": "",
    }
    assert "finite True True" in said


@pytest.mark.parametrize("where", OWN_AUTOCAST)
def test_an_autocast_for_fp32_asks_for_nothing(tmp_path: Path, where: str) -> None:
    """As a script has it that can be told another format; on a CPU torch itself turns it off."""
    job = own_autocast(where, "torch.amp.autocast('cpu', torch.float32)")
    found, said = run(tmp_path, "bf16-autocast", job)
    assert found["bf16-autocast"] == {"seen": "2 products ran in bfloat16 in the first call", "trouble": ""}
    assert "inner torch.bfloat16\n" in said and "out torch.float32 torch.float32 torch.float32" in said
    assert "finite True True" in said


def test_an_autocast_for_fp32_inside_another_leaves_something_out(tmp_path: Path) -> None:
    inside = own_autocast("inside", "torch.autocast('cpu', torch.float32)")
    job = inside.replace("out = model(x)", "with torch.autocast('cpu', torch.bfloat16): out = model(x)", 1)
    found, said = run(tmp_path, "bf16-autocast", job.replace("out.sigmoid()", "out.float().sigmoid()"))
    assert "uses autocast itself" in found["bf16-autocast"]["trouble"] and "inner torch.float32\n" in said


RESUMED = """
from copy import deepcopy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
x = torch.randn(4, 3, 8, 8)
states = {
    at: {"step": torch.tensor(3.0), "exp_avg": torch.randn(one.shape), "exp_avg_sq": torch.rand(one.shape)}
    for at, one in enumerate(model.parameters())
}
for _ in range(2):
    optimizer.load_state_dict({**optimizer.state_dict(), "state": deepcopy(states)})
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
print(*(round(one.double().abs().sum().item(), 3) for one in model.parameters()))
"""


def test_a_resumed_job_trains_the_same_with_images_channels_last(tmp_path: Path) -> None:
    """A fused step pairs weights and states by their place in memory."""
    (tmp_path / "plain").mkdir()
    _, plain = run(tmp_path / "plain", "", RESUMED)
    fixes = ["channels-last", "fused-optimizer"]
    _, said = run(tmp_path, ",".join(fixes), RESUMED)
    assert [float(one) for one in said.split()] == pytest.approx(
        [float(one) for one in plain.split()], abs=0.002
    )
    report = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=ArmReport)
    patch = patch_of(fixes, report.applied)
    assert patch.made == fixes and "empty_like(weight).copy_(state)" in patch.remarks["channels-last"]


def test_images_and_weights_are_channels_last_and_the_cache_is_kept(tmp_path: Path) -> None:
    found, said = run(tmp_path, "channels-last,keep-cache,cudnn-benchmark,expandable-segments,sdpa", IMAGES)
    assert found["channels-last"] == {
        "seen": "2 of 2 convolution weights and the first convolution's input are channels-last",
        "trouble": "",
    }
    assert "weight (27, 1, 9, 3) given (192, 1, 24, 3)" in said
    assert found["keep-cache"] == {"seen": "skipped 4 calls of empty_cache", "trouble": ""}
    assert "no GPU" in found["cudnn-benchmark"]["trouble"] and "benchmark False" in said
    assert "no GPU" in found["expandable-segments"]["trouble"]
    assert found["sdpa"]["seen"] == ""  # it was asked for, and nothing came of it


def test_fused_attention_is_seen_and_not_only_asked_for(tmp_path: Path) -> None:
    found, said = run(tmp_path, "sdpa,channels-last,keep-cache,bf16-autocast", ATTENTION)
    assert "1 call of scaled_dot_product_attention" in found["sdpa"]["seen"] and not found["sdpa"]["trouble"]
    assert "implementation sdpa" in said
    assert found["channels-last"] == {"seen": "", "trouble": "the model has no Conv2d"}
    assert found["keep-cache"] == {"seen": "", "trouble": ""}  # never called
    assert "float64 already" in found["bf16-autocast"]["trouble"]


def test_who_watches_the_steps_of_a_model_takes_no_fix_out_of_it() -> None:
    """It may come around the fix at any time; what a job compiles in place stands there alone."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 2)
    model = Model.of(module)
    both = weakref.ref(module), weakref.ref(model)
    take_off = wrap_call(torch, module, Gate(), lambda _key, _gradients: None)
    assert not was_taken_out(*both)
    take_off()
    assert not was_taken_out(*both)
    module.__dict__["_compiled_call_impl"] = module._call_impl
    assert was_taken_out(*both)


def test_segments_grow_beside_what_the_environment_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for a torch that has a GPU."""
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")
    given: list[str] = []
    segments = [{"is_expandable": True}, {"is_expandable": False}, {}]
    memory = SimpleNamespace(is_available=lambda: True, memory_snapshot=lambda: segments)
    in_use = iter([False, True, True])
    memory.is_initialized = lambda: next(in_use)
    torch = SimpleNamespace(cuda=memory, _C=SimpleNamespace(_accelerator_setAllocatorSettings=given.append))
    apply = all_fixes()["expandable-segments"].apply
    assert apply is not None
    first, second = Effect(), Effect()
    apply(torch, first)
    assert given == ["max_split_size_mb:64,expandable_segments:True"] == [os.environ["PYTORCH_ALLOC_CONF"]]
    assert first.told() == AppliedFix("1 of 3 segments can grow")
    apply(torch, second)
    assert second.told() == AppliedFix(trouble="the allocator is in use already")


DEEP = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)) * 0.5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([Block() for _ in range(10)])

    def forward(self, x):
        print("uncompiled")  # what stands around the blocks is left alone
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    loss = model(torch.ones(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("names", len(model.state_dict()), "blocks.9.up.weight" in model.state_dict())
"""


def test_the_code_made_for_one_block_serves_all_of_them(tmp_path: Path) -> None:
    found, said = run(tmp_path, "compile-blocks", GRAPHS_ALONE + DEEP)
    assert found["compile-blocks"]["seen"] == "1 compiled graph of 5 ops, for 10 times Block"
    assert said.count("uncompiled") == 4 and "names 42 True" in said


def test_a_model_that_repeats_nothing_has_no_blocks(tmp_path: Path) -> None:
    found, _ = run(tmp_path, "compile-blocks", DENSE)
    assert found["compile-blocks"]["seen"] == "" and "repeats no block" in found["compile-blocks"]["trouble"]


LAYERS = """
import torch
from torch import nn

layers = nn.ModuleList([nn.Linear(8, 8, bias=False) for _ in range(3)])
head = nn.Linear(8, 1)
optimizer = torch.optim.SGD([*layers.parameters(), *head.parameters()], lr=0.1)


def activated(layer, x, *, twice=False):
    x = layer(x)
    return x * torch.tanh(torch.log(1 + torch.exp(x))) * (2 if twice else 1)


def forward(x, scale=0.5, *, last=head):
    for layer in layers:
        x = activated(layer, x)
    return last(scale * x)


def step():
    loss = forward(torch.ones(4, 8), last=head).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    losses = [step() for _ in range(12)]
    print("losses", *(f"{one:.6f}" for one in losses))


torch.manual_seed(0)
with torch.no_grad():
    for one in (*layers.parameters(), *head.parameters()):
        one.fill_(0.1)
main()
"""


def test_the_function_that_calls_single_layers_is_compiled(tmp_path: Path) -> None:
    """The ops between the layers are the job's own: compiled layers would leave them as they are."""
    (tmp_path / "plain").mkdir()
    _, plain = run(tmp_path / "plain", "", LAYERS)
    found, said = run(tmp_path, "torch-compile", GRAPHS_ALONE + LAYERS)
    assert found["torch-compile"]["seen"].startswith("1 compiled graph of ")
    assert found["torch-compile"]["seen"].endswith(", of forward at job.py:15")
    assert said == plain


# Each step tells what a layer was given, once its weights are no longer the first.
NARROW_LAYERS = (
    LAYERS.replace(
        "    return loss.item()",
        """    formats.add((str(loss.dtype), torch.is_autocast_enabled("cpu")))
    return loss.item()""",
    )
    .replace(
        "def main():",
        """formats, given = set(), []
head.register_forward_pre_hook(lambda _, args: given.append(str(args[0].dtype)))


def main():""",
    )
    .replace("main()\n", "main()\nprint(sorted(formats), sorted(set(given)))\n", 2)
)


def test_autocast_around_single_layers_lasts_from_the_first_to_the_loss(tmp_path: Path) -> None:
    """What the job does between them is in 16 bits as well, as under an autocast of its own."""
    found, said = run(tmp_path, "bf16-autocast", NARROW_LAYERS)
    assert "ran in bfloat16" in found["bf16-autocast"]["seen"] and not found["bf16-autocast"]["trouble"]
    assert "[('torch.bfloat16', False)] ['torch.bfloat16']" in said


# Each job of layers does what ended the span too early, or let it last too long, and prints what it found.
ODD_LAYERS = """
import queue
import threading
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
first, second, third = (nn.Linear(8, 8) for _ in range(3))
matrix = nn.Parameter(torch.randn(8, 8))
x = torch.randn(16, 8)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters(), matrix], lr=0.1)


def trained(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in range(2):
    trained(second(first(x)).float().pow(2).mean())
    CODE
"""

ODD_JOBS = {
    # Weights that change while the loss of before is kept.
    "two losses": """
    before = first(x).sum()
    first.weight.data.add_(1.0)
    print(bool((first(x).sum() - before).abs() > 1))""",
    # Another thread's span does not end with the backward pass of this one.
    "threads": """
    given, made = queue.Queue(), queue.Queue()
    threading.Thread(target=lambda: [made.put(first(one)) for one in iter(given.get, None)]).start()
    given.put(x)
    before = trained(made.get().float().pow(2).mean())
    given.put(x)
    print(trained(made.get().float().pow(2).mean()) < before)
    given.put(None)""",
    # A layer without gradients in between, whether its weights or the job want none.
    "frozen": """
    hidden = first(x)
    third.requires_grad_(False)
    trained((third(hidden) + hidden @ matrix).float().pow(2).mean())
    print(True)""",
    "target": """
    hidden = first(x)
    with torch.no_grad():
        target = first(x)
    trained((hidden @ matrix - target).float().pow(2).mean())
    print(bool(first.weight.grad.abs().sum() > 0))""",
    # The graph of the last layer is gone, that of the others is not.
    "probe": """
    hidden = first(x)
    third(hidden.detach()).max().item()
    trained((hidden @ matrix).float().pow(2).mean())
    print(True)""",
    # What runs again in the backward pass, from the first layer on and behind one.
    "checkpoint": """
    block = lambda given: second(torch.relu(first(given)) @ matrix)
    trained(checkpoint(block, x, use_reentrant=False).float().pow(2).mean())
    trained(checkpoint(block, first(x), use_reentrant=False).float().pow(2).mean())
    print(True)""",
}


@pytest.mark.parametrize("what", ODD_JOBS)
def test_autocast_around_single_layers_leaves_odd_jobs_right(tmp_path: Path, what: str) -> None:
    found, said = run(tmp_path, "bf16-autocast", ODD_LAYERS.replace("CODE", ODD_JOBS[what].strip()))
    assert "ran in bfloat16" in found["bf16-autocast"]["seen"] and not found["bf16-autocast"]["trouble"]
    assert said.split() == ["True", "True"]


def test_a_compiled_function_of_layers_in_evaluation_mode_has_no_loss_after_it() -> None:
    torch = pytest.importorskip("torch")
    span, layer = Span(torch, torch.bfloat16, Effect()), torch.nn.Linear(2, 2)
    span.layers.add(layer)
    called = span.around_function(layer, "cpu")
    kept = called(torch.ones(1, 2))
    assert kept.dtype == torch.bfloat16 and span.is_open
    span.end()
    layer.eval()
    kept = called(torch.ones(1, 2))
    assert kept.dtype == torch.float32 and not span.is_open


COMPILED_LAYERS = (
    LAYERS.replace("forward(torch.ones(4, 8), last=head)", "noted(forward(torch.ones(4, 8)))")
    .replace(
        "def main():",
        """def noted(given):
    if type(given.grad_fn).__name__ == "CompiledFunctionBackward":
        formats.append(str(given.dtype))
    return given


formats = []


def main():""",
    )
    .replace("main()\n", "main()\nprint(len(formats) > 6, set(formats))\n", 2)
)


def test_autocast_holds_in_a_function_that_is_compiled_for_its_layers(tmp_path: Path) -> None:
    """The compiler goes past what stands around each layer; and what was seen there before is no proof."""
    found, said = run(tmp_path, "torch-compile,bf16-autocast", GRAPHS_ALONE + COMPILED_LAYERS)
    assert "that the compiled code gives or keeps: in bfloat16" in found["bf16-autocast"]["seen"]
    assert ", of forward at job.py:15" in found["torch-compile"]["seen"]
    assert "True {'torch.bfloat16'}" in said


def test_a_compiled_function_that_shows_nothing_of_autocast_proves_nothing() -> None:
    torch, effect = pytest.importorskip("torch"), Effect()
    effect.saw("1 product ran in bfloat16 in the first call")
    kept = partial(kept_seen, torch, effect, dtype=torch.bfloat16)
    called = Span(torch, torch.bfloat16, effect).around_function(kept(call=lambda given: given), "cpu")
    called(torch.ones(2))
    assert effect.told() == AppliedFix("", "nothing that the compiled function gives or keeps is in bfloat16")
    called(torch.ones(2).bfloat16())
    assert effect.told().seen == "1 tensor that the compiled code gives or keeps: in bfloat16"


def test_a_torch_that_is_too_old_for_autocast_is_told_so() -> None:
    effect = Effect()
    autocast_models(SimpleNamespace(is_autocast_enabled=lambda: False, __version__="2.3.1"), effect, None)
    assert effect.told() == AppliedFix("", "torch 2.3.1 is too old for it: from 2.4 on it can be made")


def test_layers_that_no_function_holds_alone_leave_the_compiler_nothing_to_fuse(tmp_path: Path) -> None:
    job = """
import torch
from torch import nn

layers = [nn.Linear(8, 8, bias=False).double() for _ in range(3)]
with torch.no_grad():
    for _ in range(4):
        x = torch.randn(4, 8)
        for layer in layers:
            x = layer(x.double()).float()
"""
    found, _ = run(tmp_path, "torch-compile", job)
    assert found["torch-compile"]["seen"] == "" and "single layers" in found["torch-compile"]["trouble"]


BEFORE_THE_STEPS = """
import torch
from torch import nn

first, last = nn.Linear(4, 4), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1)


def probe():
    return last(torch.ones(1, 4)).shape


def evaluate():
    with torch.no_grad():
        return last(torch.tanh(first(torch.ones(2, 4))) * 3)


def forward(x):
    return last(torch.tanh(first(x)) * 2)


def train():
    for _ in range(8):
        optimizer.zero_grad()
        forward(torch.ones(2, 4)).sum().backward()
        optimizer.step()


probe()
for _ in range(8):
    evaluate()
train()
"""


def test_a_function_that_is_called_before_the_steps_is_not_told_in_place_of_theirs(tmp_path: Path) -> None:
    found, _ = run(tmp_path, "torch-compile", GRAPHS_ALONE + BEFORE_THE_STEPS)
    seen = found["torch-compile"]["seen"]
    assert seen.endswith(", of evaluate at job.py:13 and forward at job.py:18")


def test_a_function_that_is_defined_in_each_step_is_not_said_to_be_compiled(tmp_path: Path) -> None:
    job = """
import torch

layer = torch.nn.Linear(4, 4)
for _ in range(6):
    def forward(x):
        return layer(x).tanh()
    forward(torch.ones(2, 4)).sum().backward()
"""
    found, _ = run(tmp_path, "torch-compile", job)
    assert found["torch-compile"]["seen"] == ""
    assert "forward at job.py:6 is defined in every step" in found["torch-compile"]["trouble"]


THREADS = """
from concurrent.futures import ThreadPoolExecutor

import torch

first, last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)


@torch.no_grad()
def forward(x):
    return last(torch.tanh(first(x)))


with ThreadPoolExecutor(4) as threads:
    for _ in range(3):
        list(threads.map(forward, [torch.ones(2, 4)] * 8))
"""


def test_threads_have_a_function_compiled_once(tmp_path: Path) -> None:
    found, _ = run(tmp_path, "torch-compile", GRAPHS_ALONE + THREADS)
    assert found["torch-compile"]["seen"].endswith(", of forward at job.py:9")


WRAPPED = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_a_model_whose_wrapper_the_compiler_passes_by_is_no_gain(tmp_path: Path) -> None:
    found, _ = run(tmp_path, "torch-compile", WRAPPED)
    assert (
        found["torch-compile"]["seen"] == "" and "before it is wrapped" in found["torch-compile"]["trouble"]
    )


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        ({"benchmark": True}, AppliedFix("cudnn.benchmark is on at the end")),
        ({"benchmark": False}, AppliedFix("cudnn.benchmark is on at the end")),  # before its model is called
        ({"deterministic": True}, AppliedFix(trouble="the job asks for deterministic algorithms")),
    ],
)
def test_a_job_that_turns_cudnn_benchmark_off_has_it_on_all_the_same(
    sets: dict[str, bool], told: AppliedFix
) -> None:
    """With a stand-in for a torch that has a GPU."""

    class Module:
        def __call__(self) -> None: ...

        def parameters(self) -> Iterator[int]:
            return iter([1])

    cudnn = SimpleNamespace(benchmark=False, deterministic=False)
    torch = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: True),
        backends=SimpleNamespace(cudnn=cudnn),
        nn=SimpleNamespace(Module=Module),
    )
    apply, effect = all_fixes()["cudnn-benchmark"].apply, Effect()
    assert apply is not None
    apply(torch, effect)
    assert cudnn.benchmark
    vars(cudnn).update(sets)
    Module()()
    found = effect.told()
    assert found.seen == told.seen and found.trouble.startswith(told.trouble)
    assert cudnn.benchmark
    assert ("undone" in {place.kind for place in effect.places}) == (sets.get("benchmark") is False)


# Each of these broke, or left something behind, where a fix looked at the first call or stood in its place.
GUESTS = """
import copy, io, torch
from dataclasses import dataclass

@dataclass
class Given:
    logits: torch.Tensor

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        body = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
        self.body = torch.compile(body, backend="eager")
        self.head = torch.nn.Linear(8, 8)
    def forward(self, x):
        h = self.head(self.body(x))
        h = torch.cond(torch.tensor(True), lambda h: h + 1, lambda h: h - 1, (h,))
        return h if self.training else Given(h)
    def __getstate__(self):
        return self.__dict__.copy()

@torch.compile(backend="aot_eager")
def loss_of(given):
    return given.float().square().mean()

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    loss_of(model(torch.randn(4, 8))).backward()
    optimizer.step()
    optimizer.zero_grad()
print("elsewhere", (torch.randn(2, 2) @ torch.randn(2, 2)).dtype)
print("frames", torch._dynamo.utils.counters["frames"]["ok"] >= 2)
model.eval()
print("given", model(torch.randn(4, 8)).logits.detach().numpy().dtype)
twin = copy.deepcopy(model.head)
print("place", copy.deepcopy(model.__dict__["_compiled_call_impl"]))
"""


def test_autocast_leaves_alone_what_the_job_compiles_and_gives(tmp_path: Path) -> None:
    found, said = run(tmp_path, "bf16-autocast", GUESTS)
    assert found["bf16-autocast"]["trouble"] == ""
    assert "elsewhere torch.float32\nframes True\ngiven float32\nplace None" in said


PLAIN = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
    def forward(self, x):
        return self.two(torch.relu(self.one(x)))

model = Net()
PREPARE
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_model_that_is_traced_is_traced_without_the_compiler(tmp_path: Path) -> None:
    trace = "torch.jit.trace(model, torch.randn(4, 8))"
    job = f"{PLAIN.replace('PREPARE', trace)}print('traced', {trace}(torch.randn(4, 8)).shape)\n"
    found, said = run(tmp_path, "torch-compile", GRAPHS_ALONE + job)
    assert "compiled graph" in found["torch-compile"]["seen"] and "traced torch.Size([4, 1])" in said


def test_what_the_job_compiles_itself_is_not_taken_for_ours(tmp_path: Path) -> None:
    found, _ = run(tmp_path, "torch-compile", PLAIN.replace("PREPARE", 'model.compile(backend="eager")'))
    assert found["torch-compile"] == {"seen": "", "trouble": "the job compiles its model itself"}
