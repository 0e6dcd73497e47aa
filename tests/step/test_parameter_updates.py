"""A job that updates its parameters itself: told by when it does so and by the gradients' shapes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from book import Book
from examples import drawn
from findwall.causes.bandwidth import unfused_optimizer
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts, serve
from findwall.facts.step_views import split_by_phase
from findwall.fixes import Use
from findwall.fixes.optimizer import fused_optimizer
from findwall.model.catalogue import KERNEL_CLASSES
from findwall.model.events import Kind, Timeline
from findwall.step.links import link
from findwall.step.parameter_updates import stepping_kernels
from sketch import facts_of
from speaking import in_words

Shape = list[int]
MUL = "void at::native::vectorized_elementwise_kernel<4, MulFunctor<float>>"
ADD = "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>"
UPDATE = ("aten::mul", "aten::add_", "aten::mul_", "aten::add_")


class Training(Book):
    """Layers of a weight each: forward, backward, and something on tensors of the weights' shapes."""

    def __init__(self, weights: list[Shape], us: float = 200.0) -> None:
        super().__init__()
        self.weights, self.us, self.sequence, self.steps = weights, us, 0, 0

    def passes(self, over: list[Shape], names: tuple[str, ...] = UPDATE) -> list[int]:
        """Pointwise ops over tensors of such shapes; the rows of their kernels."""
        return [
            self.op(name, [shape, shape], ["float", "float"], MUL if "mul" in name else ADD, self.us)
            for shape in over
            for name in names
        ]

    def forward(self, also: list[Shape]) -> None:
        self.first = self.sequence
        for weight in self.weights:
            self.op(
                "aten::linear",
                [[64, weight[-1]], weight],
                ["float", "float"],
                "sm80_gemm",
                sequence=self.sequence,
            )
            self.sequence += 1
        self.passes(also)

    def backward(self, keeps: bool = True) -> None:
        for number, weight in enumerate(reversed(self.weights)):
            engine = self.open("autograd::engine::evaluate_function: AddmmBackward0")
            node = self.open("AddmmBackward0", sequence=self.sequence - 1 - number)
            self.op("aten::mm", [[64, weight[-1]], weight], ["float", "float"], "sm80_gemm")
            self.close(node)
            self.close(engine)
            if keeps:
                engine = self.open("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad")
                self.close(self.open("torch::autograd::AccumulateGrad", [weight], ["float"]))
                self.close(engine)

    def marked(self, begin: int) -> None:
        self.now += 1_000
        self._add(Kind.ANNOTATION, f"ProfilerStep#{self.steps}", begin, self.now)
        self.steps += 1


def job(
    weights: list[Shape],
    updated: list[Shape],
    also: list[Shape] | None = None,
    names: tuple[str, ...] = UPDATE,
    keeps: bool = True,
    steps: int = 4,
) -> tuple[Timeline, list[int]]:
    """Steps that update tensors of some shapes after the backward pass, and pass over others before it."""
    book, rows = Training(weights), list[int]()
    for _ in range(steps):
        begin = book.now
        book.forward(also or [])
        book.backward(keeps)
        rows += book.passes(updated, names)
        book.marked(begin)
    return book.timeline(), rows


def found(timeline: Timeline) -> list[int]:
    rows = timeline.rows(Kind.KERNEL)
    return rows[stepping_kernels(timeline, link(timeline), rows)].tolist()


WEIGHTS = st.lists(
    st.lists(st.sampled_from([256, 512, 1024, 2048, 4096]), min_size=1, max_size=2),
    min_size=1,
    max_size=6,
    unique_by=tuple,
)


@drawn(67)
@given(WEIGHTS, st.booleans())
def test_all_of_the_update_is_found_and_nothing_of_the_model(weights: list[Shape], alike: bool) -> None:
    also = weights if alike else [[64, 77]]  # activations may have a weight's shape
    timeline, rows = job(weights, weights, also)
    assert found(timeline) == rows


@drawn(67)
@given(WEIGHTS)
def test_passes_over_the_same_shapes_before_the_backward_pass_are_the_models(weights: list[Shape]) -> None:
    timeline, _ = job(weights, [], weights)
    assert found(timeline) == []


@drawn(67)
@given(WEIGHTS, st.data())
def test_an_update_changes_most_of_the_parameters(weights: list[Shape], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(weights)))
    timeline, rows = job(weights, weights[:count])
    assert found(timeline) == (rows if count > len(weights) / 2 else [])


@drawn(33)
@given(WEIGHTS)
def test_what_changes_nothing_is_no_update(weights: list[Shape]) -> None:
    timeline, _ = job(weights, weights, names=("aten::mul", "aten::add"))
    assert found(timeline) == []


@drawn(33)
@given(WEIGHTS)
def test_what_comes_after_the_last_change_is_none_of_it(weights: list[Shape]) -> None:
    book, rows = Training(weights), list[int]()
    for _ in range(3):
        begin = book.now
        book.forward([])
        book.backward()
        rows += book.passes(weights)
        book.passes(weights, ("aten::to", "aten::mul"))  # a teacher's weights, cast for its forward pass
        book.marked(begin)
    assert found(book.timeline()) == rows


def test_a_range_that_names_an_optimizer_is_believed() -> None:
    book, rows = Training([[512, 512]]), list[int]()
    for _ in range(3):
        begin = book.now
        book.forward([])
        book.backward()
        book.passes([[512, 512]])
        stepping = book.open("Optimizer.step#AdamW.step", kind=Kind.ANNOTATION)
        rows += book.passes([[512, 512]])
        book.close(stepping)
        book.marked(begin)
    assert found(book.timeline()) == rows


def test_gradients_that_are_handed_out_are_known_by_the_weights() -> None:
    timeline, rows = job([[512, 256], [256, 512]], [[512, 256], [256, 512]], keeps=False)
    assert found(timeline) == rows


def test_without_training_there_is_no_update() -> None:
    book = Training([[512, 512]])
    for _ in range(3):
        begin = book.now
        book.forward([])
        book.passes([[512, 512]])
        book.marked(begin)
    assert found(book.timeline()) == []


def lion() -> Facts:
    weights = [[4096, 4096], [4096, 1024], [4096]]
    return facts_of(job(weights, weights, [[64, 4096]])[0])


def test_the_wall_is_the_optimizer_and_its_fix_is_not_to_compile_the_model() -> None:
    facts = lion()
    assert decide(facts).cause == "unfused-optimizer"
    mine = serve(facts, facts.kernels.row, "update")
    classes = {KERNEL_CLASSES[at] for at in facts.kernels.class_index[mine].tolist()}
    assert classes == {"optimizer"}
    text = in_words(unfused_optimizer.CAUSE, facts)
    assert "the job's own update of its parameters" in text
    assert "ompile the function that updates a parameter" in text
    outcome = fused_optimizer.FIX.advise(facts)
    assert isinstance(outcome, Use)
    assert "torch._foreach_*" in in_words(outcome)
    assert "AdamW" not in text + in_words(outcome)


def test_its_phase_is_the_optimizers() -> None:
    facts = lion()
    phases = split_by_phase(facts)
    assert phases["optimizer"] >= facts.spent()["unfused-optimizer"] > 0.5 * facts.step
