"""Edits of a job's text: what was asked for is there once, the file parses, and all else is as it was."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from examples import drawn
from findwall.fixes import all_fixes
from findwall.fixes.precision import tf32
from findwall.fixes.stack_patch import patch_of
from findwall.model.applied import Applied, Place, Spot
from findwall.model.patch import Patch
from findwall.patches import NoPatch
from findwall.patches.diff import to_diff
from findwall.patches.editor import Editor
from findwall.patches.edits import FileEdits
from findwall.patches.job_source import Source, unused

TAKES = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers")


def calls(text: str, name: str) -> list[ast.Call]:
    """Calls of that name, by its last part."""
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return [one for one in found if (ast.unparse(one.func)).split(".")[-1] == name]


def spot(path: Path, name: str, function: str = "") -> Spot:
    """Where a call of that name ends."""
    (call,) = calls(path.read_bytes().decode().removeprefix("\ufeff"), name)
    return Spot(str(path), call.lineno, call.end_lineno or 0, call.end_col_offset or 0, function)


def edited(text: str, edit: Callable[[Editor, Path], None], folder: Path) -> str:
    path = folder / "job.py"
    path.write_bytes(text.encode())
    editor = Editor([])
    edit(editor, path)
    return editor.file(str(path)).render()


@st.composite
def written_calls(draw: st.DrawFn) -> tuple[str, tuple[str, ...]]:
    """A call in any format, and the parameters that it passes, those in its `**` as well."""
    positional = draw(
        st.lists(st.sampled_from(["data", "(8)", "f(x, y)", "'é#,)'", "a if b else c"]), max_size=6)
    )
    names = draw(
        st.lists(st.sampled_from(["pin_memory", "num_workers", "timeout", "collate_fn"]), unique=True)
    )
    names = [one for one in names if one not in TAKES[: len(positional)]]
    starred = draw(st.sampled_from([(), ("num_workers",), ("drop_last",)]))
    starred = tuple(one for one in starred if one not in names and one not in TAKES[: len(positional)])
    arguments = [
        *positional,
        *(f"{name}={draw(st.sampled_from(['0', '(1)', 'args.n', 'g(1,)']))}" for name in names),
    ]
    arguments += ["**more"] if starred or draw(st.booleans()) else []
    newline, tab = draw(st.sampled_from(["\n", "\r\n"])), draw(st.sampled_from(["    ", "\t", "  "]))
    comment = draw(st.sampled_from(["", "  # a (comment), with)"]))
    comma = "," if arguments and draw(st.booleans()) else ""
    layout = draw(st.sampled_from(["one line", "hanging", "own lines"]))
    if layout == "one line":
        inside = ", ".join(arguments) + comma
    elif layout == "hanging":
        inside = f",{comment}{newline}{tab * 3}".join(arguments) + comma
    else:
        rows = [f"{newline}{tab * 2}{one}," for one in arguments]
        inside = comment.join(rows).removesuffix("" if comma else ",") + comment + newline + tab
    text = f"if 1:{newline}{tab}x = 'ü'; loader = DataLoader({inside}); y = 2{comment}{newline}# end"
    text += draw(st.sampled_from(["", newline]))
    passed = (*TAKES[: len(positional)], *names, *starred)
    return text, passed


@drawn(150)
@given(written_calls())
def test_an_argument_is_there_once_in_whatever_way_a_call_is_written(
    tmp_path_factory: pytest.TempPathFactory, written: tuple[str, tuple[str, ...]]
) -> None:
    text, passed = written
    folder = tmp_path_factory.getbasetemp()

    def edit(editor: Editor, path: Path) -> None:
        place = Place("loader", (spot(path, "DataLoader"),), "", TAKES, passed or ("dataset",))
        editor.set_arguments(place, num_workers="4", prefetch_factor="2")

    after = edited(text, edit, folder)
    (was,), (now,) = calls(text, "DataLoader"), calls(after, "DataLoader")
    bound = {TAKES[at]: ast.unparse(one) for at, one in enumerate(now.args)}
    bound |= {one.arg: ast.unparse(one.value) for one in now.keywords if one.arg}
    stars = [ast.unparse(one.value) for one in now.keywords if one.arg is None]
    if "num_workers" in passed and "num_workers" not in bound:
        assert stars == ["{**more, 'num_workers': 4}"]
    else:
        assert bound.pop("num_workers") == "4" and stars in ([], ["more"])
    assert bound.pop("prefetch_factor") == "2"
    before = {TAKES[at]: ast.unparse(one) for at, one in enumerate(was.args)}
    before |= {one.arg: ast.unparse(one.value) for one in was.keywords if one.arg}
    before.pop("num_workers", None)
    bound.pop("num_workers", None)
    assert bound == before
    first, last = was.lineno - 1, was.end_lineno or 0
    old, new = text.split("\n"), after.split("\n")
    assert new[:first] == old[:first] and new[len(new) - len(old) + last :] == old[last:]
    assert text.count("# a") == after.count("# a")
    assert ("\r\n" in text) <= (after.count("\n") == after.count("\r\n"))


BODY = """\
def fit(model, batches):
    for x in batches:
        {}
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("loss = f(model(x))\n\n        # so\n        loss.backward()", "loss = f(model(x))"),
        ("if x:\n            out = model(x)\n        loss = g(out)\n        loss.backward()", "if x:"),
        ("loss = f(model(x))\n        with sync():\n            loss.backward()", "loss = f(model(x))"),
        ("g(model(x)).backward()", "loss = g(model(x))"),
    ],
)
def test_autocast_ends_before_the_backward_pass(tmp_path: Path, body: str, expected: str) -> None:
    text = "import torch\n" + BODY.format(body)
    after = _autocast(text, tmp_path)
    tree = ast.parse(after)
    (block,) = [
        one for one in ast.walk(tree) if isinstance(one, ast.With) and "autocast" in ast.unparse(one.items[0])
    ]
    inside = ast.unparse(block)
    assert ast.unparse(block.body[0]).startswith(expected) and "model(x)" in inside
    assert ("backward" not in inside and "# so" in after) or "# so" not in text
    assert after.count("backward") == 1 and after.count("model(x)") == 1


@pytest.mark.parametrize(
    "body",
    [
        "loss = f(model(x)); loss.backward()",
        "loss = f(model(x))\n        for y in loss:\n            y.backward()",
        "loss = yield model(x)\n        loss.backward()",
        "if f(model(x)).backward(): pass",
    ],
)
def test_what_cannot_be_wrapped_safely_is_not(tmp_path: Path, body: str) -> None:
    with pytest.raises(NoPatch):
        _autocast("import torch\n" + BODY.format(body), tmp_path)


@pytest.mark.parametrize(
    ("own", "becomes"),
    [
        (
            "torch.autocast(device, torch.float16, enabled=amp)",
            "torch.autocast(device, torch.bfloat16, enabled=True)",
        ),
        ('torch.autocast("cuda")', 'torch.autocast("cuda", dtype=torch.bfloat16)'),
        ("torch.cuda.amp.autocast(amp)", "torch.cuda.amp.autocast(True, dtype=torch.bfloat16)"),
    ],
)
def test_an_autocast_of_the_job_is_set_itself(tmp_path: Path, own: str, becomes: str) -> None:
    """One around it would do nothing: inside, the job's own decides."""
    body = f"with {own}:\n            loss = f(model(x))\n        loss.backward()"
    text = "import torch\n" + BODY.format(body)
    assert _autocast(text, tmp_path) == text.replace(own, becomes)


def test_an_autocast_that_the_job_chose_elsewhere_is_set_there(tmp_path: Path) -> None:
    chosen = "import torch\ncontext = nothing() if plain else torch.amp.autocast('cuda', dtype=kind)\n"
    body = "with context:\n            loss = f(model(x))\n        loss.backward()"
    after = _autocast(chosen + BODY.format(body), tmp_path)
    assert after == (chosen + BODY.format(body)).replace("dtype=kind", "dtype=torch.bfloat16")


def test_of_two_autocasts_under_one_name_none_is_set(tmp_path: Path) -> None:
    chosen = "import torch\nif plain:\n    context = torch.autocast('cuda', enabled=False)\nelse:\n"
    chosen += "    context = torch.autocast('cuda', kind)\n"
    body = "with context:\n            loss = f(model(x))\n        loss.backward()"
    with pytest.raises(NoPatch, match="line 3"):
        _autocast(chosen + BODY.format(body), tmp_path)


@pytest.mark.parametrize("decorator", ['@torch.autocast("cpu", enabled=False)', "@off"])
def test_a_function_that_the_job_decorates_with_autocast_has_it_set_there(
    tmp_path: Path, decorator: str
) -> None:
    """One around its call would do nothing inside."""
    head = f"import torch\noff = torch.autocast('cpu', enabled=False)\n\n{decorator}\n"
    path = tmp_path / "job.py"
    path.write_text(head + "def forward(x):\n    return model(x)\n\nloss = forward(x)\nloss.backward()\n")
    spots, back = (spot(path, "model"), spot(path, "forward")), spot(path, "backward")
    places = [Place("call", spots, given=("trains",), value="cpu"), Place("span", spots, until=(back,))]
    patch = patch_of(["bf16-autocast"], Applied(places={"bf16-autocast": places}))
    own = "torch.autocast('cpu', enabled=True, dtype=torch.bfloat16)"
    made = f"off = {own}" if decorator == "@off" else "@" + own.replace("'", '"')
    assert f"+{made}\n" in patch.diff and patch.made == ["bf16-autocast"]


def test_what_a_trial_made_fp32_again_is_so_under_an_autocast_of_the_job(tmp_path: Path) -> None:
    body = "with torch.autocast(device, enabled=amp):\n            out = model(x)\n        g(out).backward()"
    after = _autocast("import torch\n" + BODY.format(body), tmp_path, "trains", "widened")
    assert "enabled=True" in after and "out = model(x).float()\n" in after


def _autocast(text: str, folder: Path, *given: str) -> str:
    path = folder / "job.py"
    path.write_text(text)
    call, back = spot(path, "model", "fit"), spot(path, "backward", "fit")
    places = [
        Place("call", (call,), given=given or ("trains",), value="cuda"),
        Place("span", (call,), value="cuda", until=(back,)),
    ]
    editor = Editor(places)
    write = all_fixes()["bf16-autocast"].patch
    assert write is not None
    write(editor)
    return editor.file(str(path)).render()


def test_lines_go_behind_the_imports_and_torch_by_its_name_there(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text('"""Doc."""\nfrom __future__ import annotations\nimport torch as th\n\n\ndef f(): ...')
    place = Place("script", (Spot(str(path), 3, function="<module>"),), value="expandable_segments:True")
    stack = ["tf32", "cudnn-benchmark", "expandable-segments"]
    patch = patch_of(stack, Applied(places={name: [place] for name in stack}))
    assert patch.made == stack
    _applied(tmp_path, patch.diff)
    lines = path.read_text().splitlines()
    assert lines.index("import os") < lines.index("import torch as th")
    assert 'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"' in lines
    assert lines[-6:-3] == [
        'th.set_float32_matmul_precision("high")',
        "th.backends.cudnn.allow_tf32 = True",
        "th.backends.cudnn.benchmark = True",
    ]


def _applied(folder: Path, diff: str) -> None:
    (folder / "it.patch").write_bytes(diff.encode())
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "apply", "it.patch"], cwd=folder, check=True)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["job.py", "my jöb.py"])
def test_a_diff_applies_whatever_the_file_looks_like(
    tmp_path: Path, mark: str, newline: str, name: str
) -> None:
    path = tmp_path / "deep" / name
    path.parent.mkdir()
    (tmp_path / ".git").mkdir()
    text = newline.join(["x = 'ü'", "model = Net()", "optimizer = Adam(p)", "model(x)"])  # no last newline
    path.write_bytes((mark + text).encode())
    places = {
        "fused-optimizer": [Place("optimizer", (spot(path, "Adam"),))],
        "torch-compile": [Place("call", (spot(path, "model"),))],
    }
    (tmp_path / ".git").rmdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    patch = patch_of(list(places), Applied(places=places))
    assert patch.root == str(tmp_path) and f"--- a/deep/{name}" in patch.diff
    _applied(tmp_path, patch.diff)
    expected = [mark + "x = 'ü'", "model = Net()", "model.compile()", "optimizer = Adam(p, fused=True)"]
    assert path.read_bytes().decode() == newline.join([*expected, "model(x)"])


TRAINER = """\
from transformers import Trainer, Seq2SeqTrainingArguments as Arguments

arguments = Arguments("out", bf16=False)
Trainer(model, arguments).train()
"""


def test_where_a_library_runs_the_loop_its_own_settings_are_edited(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(TRAINER)
    here = (spot(path, "train"),)
    places = {
        "loader-workers": [Place("loader", here, "transformers", value="4")],
        "bf16-autocast": [Place("call", here, "transformers", given=("trains",), value="cuda")],
        "torch-compile": [Place("call", here, "transformers")],
        "sdpa": [Place("call", here, "transformers", value="switch")],
        "foreach-optimizer": [Place("optimizer", here, "transformers")],
    }
    patch = patch_of(list(places), Applied(places=places))
    assert patch.made == ["loader-workers", "bf16-autocast", "torch-compile"]
    assert list(patch.left) == ["sdpa", "foreach-optimizer"]
    _applied(tmp_path, patch.diff)
    (call,) = calls(path.read_text(), "Arguments")
    assert {one.arg: ast.unparse(one.value) for one in call.keywords} == {
        "bf16": "True",
        "dataloader_num_workers": "4",
        "dataloader_persistent_workers": "True",
        "dataloader_prefetch_factor": "4",
        "torch_compile": "True",
    }


def test_where_its_settings_are_not_in_the_script_they_are_named(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(TRAINER.replace("Arguments(", "load("))
    places = {"bf16-autocast": [Place("call", (spot(path, "train"),), "transformers", value="cuda")]}
    patch = patch_of(["bf16-autocast"], Applied(places=places))
    assert patch.diff == "" and patch.left == {"bf16-autocast": "Set `TrainingArguments(bf16=True)`."}


def test_a_fix_that_cannot_be_edited_leaves_the_edits_of_the_others(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("model = Net()\nmodel.inner(x)\noptimizer = Adam(*p)\n")
    places = {
        "fused-optimizer": [Place("optimizer", (spot(path, "Adam"),), given=("params",))],
        "torch-compile": [Place("call", (spot(path, "inner"),))],
    }
    patch = patch_of(["torch-compile", "fused-optimizer"], Applied(places=places))
    assert patch.made == ["fused-optimizer"] and "where the model is made" in patch.left["torch-compile"]
    assert "+optimizer = Adam(*p, fused=True)" in patch.diff and ".compile" not in patch.diff


def test_a_fix_whose_edit_breaks_leaves_the_edits_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patch is one part of an answer that took minutes."""

    def breaks(_editor: Editor) -> None:
        raise StopIteration

    path = tmp_path / "job.py"
    path.write_text("optimizer = Adam(p)\n")
    monkeypatch.setattr(tf32, "FIX", replace(tf32.FIX, patch=breaks))
    place = Place("optimizer", (spot(path, "Adam"),), given=("params",))
    patch = patch_of(["tf32", "fused-optimizer"], Applied(places={"fused-optimizer": [place]}))
    assert patch.made == ["fused-optimizer"] and "StopIteration" in patch.left["tf32"]


@pytest.mark.parametrize(("taken", "free"), [("a", "b"), ("a b", "b_2"), ("a b b_2", "b_3")])
def test_a_name_is_found_where_all_that_fit_are_taken(taken: str, free: str) -> None:
    source = Source("".join(f"{one} = 1\n" for one in taken.split()).encode())
    assert unused(source, "a", "b") == free


LAYERS = """\
import torch as t


class Tower:
    @staticmethod
    @t.no_grad()
    def forward(x):
        return last(first(x))


def forward(x):
    return x
"""


def test_the_function_that_calls_layers_is_compiled_inside_of_what_decorates_it(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(LAYERS)
    places = [Place("function", (Spot(str(path), 5, function="forward"),))]  # the first of its decorators
    patch = patch_of(["reduce-overhead"], Applied(places={"reduce-overhead": places}))
    _applied(tmp_path, patch.diff)
    assert path.read_text().splitlines()[4:8] == [
        "    @staticmethod",
        "    @t.no_grad()",
        '    @t.compile(mode="reduce-overhead")',
        "    def forward(x):",
    ]


def test_the_blocks_of_a_model_are_compiled_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("model = Net()\nblock = 3\nmodel(x)\n")
    here = (spot(path, "model"),)
    patch = patch_of(
        ["compile-blocks"],
        Applied(places={"compile-blocks": [Place("call", here, given=("each",), value=".layers[0].blocks")]}),
    )
    _applied(tmp_path, patch.diff)
    assert path.read_text().splitlines()[1:3] == [
        "for each_block in model.layers[0].blocks:",
        "    each_block.compile()",
    ]


def test_blocks_that_stand_among_other_parts_are_named(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("model = Net()\nmodel(x)\n")
    places = {"compile-blocks": [Place("call", (spot(path, "model"),), value="Block")]}
    patch = patch_of(["compile-blocks"], Applied(places=places))
    assert patch.diff == "" and patch.left == {
        "compile-blocks": "Call `.compile()` on each Block of `model`."
    }


def test_each_of_several_functions_that_call_layers_is_compiled(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(LAYERS)
    places = [Place("function", (Spot(str(path), line, function="forward"),)) for line in (5, 11)]
    patch = patch_of(["torch-compile"], Applied(places={"torch-compile": places}))
    _applied(tmp_path, patch.diff)
    text = path.read_text()
    assert text.count("@t.compile\n") == 2 and "\n@t.compile\ndef forward" in text


def test_a_function_that_is_not_found_is_named(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(LAYERS)
    places = {"torch-compile": [Place("function", (Spot(str(path), 1, function="forward"),))]}
    patch = patch_of(["torch-compile"], Applied(places=places))
    assert patch.diff == "" and "`@torch.compile` on `forward`" in patch.left["torch-compile"]


def test_what_the_job_copies_itself_is_pinned_on_the_way(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("x = batch['x'].to(device)\ny = (a + b).cuda(non_blocking=False)\n")
    takes = ("", "", "non_blocking")
    places = [
        Place("pageable", (spot(path, "to"),), takes=takes, given=("",)),
        Place("pageable", (spot(path, "cuda"),), takes=("", "non_blocking"), given=("non_blocking",)),
    ]
    patch = patch_of(["pin-memory"], Applied(places={"pin-memory": places}))
    _applied(tmp_path, patch.diff)
    assert path.read_text().splitlines() == [
        "x = batch['x'].pin_memory().to(device, non_blocking=True)",
        "y = ((a + b).pin_memory()).cuda(non_blocking=True)",
    ]


def test_tf32_that_the_job_turns_off_itself_is_left_to_a_person(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("import torch\nmodel(x)\n")
    here = (Spot(str(path), 2, function="<module>"),)
    places = {"tf32": [Place("script", here), Place("undone", here)]}
    patch = patch_of(["tf32"], Applied(places=places))
    assert patch.diff == "" and "turns TF32 off itself" in patch.left["tf32"]


def test_a_file_that_has_changed_since_gives_no_diff(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("optimizer = Adam(p)\n")
    places = {"fused-optimizer": [Place("optimizer", (spot(path, "Adam"),))]}
    path.write_text("import torch\n\noptimizer = Adam(p)\n")
    assert patch_of(["fused-optimizer"], Applied(places=places)).diff == ""


def test_without_places_nothing_is_edited() -> None:
    assert patch_of(["tf32"], Applied()).left.keys() == {"tf32"}


def test_every_fix_that_can_be_tried_can_be_kept() -> None:
    assert {name for name, fix in all_fixes().items() if (fix.apply is None) != (fix.patch is None)} == set()


def test_an_unchanged_file_is_in_no_diff(tmp_path: Path) -> None:
    edits = FileEdits(Source(b"x = 1\n"))
    assert not edits.is_changed and to_diff({str(tmp_path / "job.py"): edits}, tmp_path) == ""


@pytest.mark.parametrize(
    "text",
    [
        "net = Net()\nfor net in nets:\n    net(x)\n",
        "net = Net()\nout = [net(x) for net in nets]\n",
        "with a as net:\n    pass\nnet(x)\n",
        "def f(net):\n    net(x)\n\nmap(f, nets)\n",
        "(lambda net: net(x))(Net())\n",
    ],
)
def test_a_model_whose_name_is_given_elsewhere_is_not_compiled(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.py"
    path.write_text(text)
    (call,) = (one for one in calls(text, "net") if ast.unparse(one) == "net(x)")
    here = Spot(str(path), call.lineno, call.end_lineno or 0, call.end_col_offset or 0)
    patch = patch_of(["torch-compile"], Applied(places={"torch-compile": [Place("call", (here,))]}))
    assert patch.diff == "" and "where the model is made" in patch.left["torch-compile"]


MADE_LATER = {
    "attribute": """
class Runner:
    def __init__(self):
        self.net, self.opt = None, None
    def setup(self):
        self.net = Net()
        self.net.compile()
    def fit(self):
        self.net(x)
""",
    "lazily": """
class Runner:
    def __init__(self):
        self.net: Net | None = None
    def fit(self):
        for x in batches:
            if self.net is None:
                self.net = Net()
                self.net = self.net.to(device)
                self.net.compile()
            self.net(x)
""",
    "global": """
net = None
def setup():
    global net
    net = Net()
    net.compile()
def fit():
    net(x)
setup()
fit()
""",
    "global, called at the top": """
net = None
def setup():
    global net
    net = Net()
    net.compile()
setup()
net(x)
""",
    "main": """
net = None
def fit():
    net(x)
if __name__ == "__main__":
    net = Net()
    if wide:
        net = net.double()
    net.compile()
    fit()
""",
    "passed": """
def fit(net=None):
    if net is None:
        net = Net()
    net.compile()
    net(x)
""",
}


@pytest.mark.parametrize("patched", MADE_LATER.values(), ids=MADE_LATER)
def test_a_model_that_is_none_at_first_is_compiled_where_it_is_made(tmp_path: Path, patched: str) -> None:
    plain = "".join(line for line in patched.splitlines(True) if "compile" not in line)
    path, patch = _compiled(tmp_path, plain)
    assert patch.left == {}
    _applied(tmp_path, patch.diff)
    assert path.read_text() == patched


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def __init__(self):\n        self.net = Net()\n    def load(self):\n"
        "        self.net = read()\n    def fit(self):\n        self.net(x)\n",
        "net = Net()\ndef load():\n    global net\n    net = read()\nload()\nnet(x)\n",
        "net = Net()\ndef load():\n    global net\n    net = read()\ndef fit():\n    net(x)\n",
        "def f():\n  net = Net()\n  def load():\n    nonlocal net\n    net = read()\n  net(x)\n",
        "net = Net(); y = 1\nnet(x)\n",
        "net = Net()\ndef fit():\n    net = None\n    load()\n    net(x)\n",
        "def fit():\n    for x in y:\n        if not net: net = Net()\n        net(x)\n",
        "net = Net()\nfor x in y:\n    if x:\n        net = grow(net)\n    net(x)\n",
    ],
)
def test_a_model_that_more_than_one_place_may_have_made_is_not_compiled(tmp_path: Path, text: str) -> None:
    _, patch = _compiled(tmp_path, text)
    assert patch.diff == "" and list(patch.left) == ["torch-compile"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("net = S()\nnet(x)\nfor layer in net:\n    pass\n", 3),
        ("net = S()\nnet(x)\nfirst = net[0]\n", 3),
        ("net = S()\nnet(x)\nt.save(net.state_dict(), f)\n", 3),
        ("net = S()\nnet(x)\nnames = [n for n, _ in net.named_parameters()]\n", 3),
        ("net = S()\ndef save():\n    t.save(net.state_dict())\nnet(x)\n", 3),
        ("def save(m):\n    t.save(m.state_dict())\nnet = S()\nnet(x)\nsave(net)\n", 2),
        ("def a(m):\n    b(n=m)\ndef b(n):\n    n[0]\nnet = S()\nnet(x)\na(net)\n", 4),
        ("net = S()\nnet(x)\nexport(net)\n", 3),
        ("net = S()\nnet(x)\nkept = {'net': net}\n", 3),
        (
            "class A:\n  def make(me):\n    me.net = S()\n  def go(me):\n    me.net(x)\n    len(me.net)\n",
            6,
        ),
    ],
)
def test_a_model_of_torchs_own_class_stays_itself_where_a_line_needs_it(
    tmp_path: Path, text: str, line: int
) -> None:
    """`torch.compile(model)` is no list of layers, and calls the weights by other names."""
    _, patch = _compiled(tmp_path, text, "torch's")
    assert patch.diff == "" and f": line {line} needs" in patch.left["torch-compile"]


@pytest.mark.parametrize(
    "text",
    [
        "net = S()\nnet(x)\nprint(net)\no = Adam(net.parameters())\n",
        "net = S()\nnet = wrap(net)\nassert net is not None\nnet(x)\n",
        "def make():\n    net = S()\n    return net\nnet = make()\nnet(x)\n",
        "def fit(m, n):\n    m.train()\n    if n: fit(m, n - 1)\nnet = S()\nnet(x)\nfit(net, 2)\n",
    ],
)
def test_a_model_of_torchs_own_class_is_compiled_under_its_name(tmp_path: Path, text: str) -> None:
    _, patch = _compiled(tmp_path, text, "torch's")
    assert patch.left == {} and "+net = torch.compile(net)" in patch.diff


def _compiled(folder: Path, text: str, whose: str = "") -> tuple[Path, Patch]:
    path = folder / "job.py"
    path.write_text(text)
    (call,) = (one for one in calls(text, "net") if ast.unparse(one).endswith("net(x)"))
    here = Spot(str(path), call.lineno, call.end_lineno or 0, call.end_col_offset or 0, "fit")
    places = [Place("call", (here,), value=whose)]
    return path, patch_of(["torch-compile"], Applied(places={"torch-compile": places}))


def test_steps_that_no_counter_of_a_function_counts_are_left_to_a_person(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(
        "def epoch():\n    for i, x in enumerate(y):\n        o.step()\n\nfor e in range(9):\n    epoch()\n"
    )
    places = {"freeze-gc": [Place("step", (spot(path, "step", "epoch"), spot(path, "epoch", "<module>")))]}
    patch = patch_of(["freeze-gc"], Applied(places=places))
    assert patch.diff == "" and "`gc.collect()` every 500 steps: `epoch`" in patch.left["freeze-gc"]
    assert patch.left["freeze-gc"].endswith(".")


@pytest.mark.parametrize("way", ["fused", "foreach"])
def test_a_checkpoint_that_undoes_an_edit_is_told_beside_it(tmp_path: Path, way: str) -> None:
    path = tmp_path / "job.py"
    path.write_text("from torch.optim import AdamW as A\no = A(p)\no.load_state_dict(c)\n")
    made = Place("optimizer", (spot(path, "A"),), value="AdamW")
    loaded = Place("loaded", (spot(path, "load_state_dict"),))
    name = f"{way}-optimizer"
    patch = patch_of([name], Applied(places={name: [made, loaded]}))
    assert patch.made == [name] and f"+o = A(p, {way}=True)" in patch.diff
    assert f"set `{way}` to True" in patch.remarks[name]
    assert patch_of([name], Applied(places={name: [made]})).remarks == {}


@pytest.mark.parametrize("way", ["fused", "foreach"])
@pytest.mark.parametrize("call", ["KINDS[name](p)", "kind(p, lr=1)", "getattr(optim, name)(p)"])
def test_a_call_that_may_make_another_optimizer_is_left_to_a_person(
    tmp_path: Path, way: str, call: str
) -> None:
    path = tmp_path / "job.py"
    path.write_text(f"o = {call}\n")
    name, here = f"{way}-optimizer", Spot(str(path), 1, 1, len(f"o = {call}"))
    patch = patch_of([name], Applied(places={name: [Place("optimizer", (here,), value="AdamW")]}))
    assert patch.diff == "" and patch.left[name].startswith(
        f"Pass `{way}=True` where AdamW is chosen: line 1"
    )


@pytest.mark.parametrize("name", ["loader-workers", "pin-memory", "persistent-workers"])
def test_a_call_that_makes_other_loaders_too_is_left_to_a_person(tmp_path: Path, name: str) -> None:
    path = tmp_path / "job.py"
    path.write_text("def make(data):\n    return DataLoader(data)\ntrain = make(a)\nchecked = make(b)\n")
    here = spot(path, "DataLoader", "make")
    made = Place("loader", (here, Spot(str(path), 3)), value="2")
    others = [made, Place("beside", (here, Spot(str(path), 4)))]
    patch = patch_of([name], Applied(places={name: others}))
    assert patch.diff == "" and "line 2 of job.py makes others too." in patch.left[name]
    elsewhere = [made, Place("beside", (Spot(str(path), 4),))]
    assert patch_of([name], Applied(places={name: elsewhere})).made == [name]


THREADED = "import torch\nfrom torch.utils.data import DataLoader\nloader = DataLoader(data{})\n"


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("own", ["", ", worker_init_fn=begin"])
def test_workers_whose_batches_use_threads_get_one_each(tmp_path: Path, threaded: bool, own: str) -> None:
    path = tmp_path / "job.py"
    path.write_text(THREADED.format(own))
    made = Place("loader", (spot(path, "DataLoader"),), value="4")
    places = [made, *([replace(made, kind="threaded")] if threaded else [])]
    patch = patch_of(["loader-workers"], Applied(places={"loader-workers": places}))
    assert patch.made == ["loader-workers"]
    written, told = (
        "worker_init_fn=one_thread_each" in patch.diff,
        "In worker_init_fn, limit" in str(patch.remarks),
    )
    assert (written, told) == (threaded and not own, threaded and bool(own))
    assert ("+def one_thread_each(worker: int) -> None:" in patch.diff) == written
    _applied(tmp_path, patch.diff)
    functions: dict[str, object] = {}
    tree = ast.parse(path.read_text())
    defined: list[ast.stmt] = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    exec(compile(ast.Module(defined, []), "job.py", "exec"), functions)
    assert ("one_thread_each" in functions) == written


def test_a_library_that_makes_the_loader_is_told_of_threads(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(TRAINER)
    made = Place("loader", (spot(path, "train"),), "transformers", value="4")
    places = [made, replace(made, kind="threaded")]
    patch = patch_of(["loader-workers"], Applied(places={"loader-workers": places}))
    assert patch.made == ["loader-workers"] and "OMP_NUM_THREADS=1" in patch.remarks["loader-workers"]
