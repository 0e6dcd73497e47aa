"""A job whose attention is set up for every length that it has not had."""

from __future__ import annotations

from book import Book
from findwall.model.events import Kind, Timeline

MS = 1_000_000
ATTENTION = "aten::_scaled_dot_product_cudnn_attention"
BACKWARD = "aten::_scaled_dot_product_cudnn_attention_backward"


class Job(Book):
    """Ops of a library one after the other, with some silence inside or between them."""

    def call(
        self, name: str, length: int | None = 512, silent_ms: float = 0.0, thread: int = 0, late: bool = False
    ) -> None:
        """An op of one kernel; it is silent before its launch, or after it if `late`."""
        dims = None if length is None else [[8, 16, length, 64]] * 3
        op = self.open(name, dims, ["c10::BFloat16"] * 3)
        self.rows[op]["thread"] = thread
        self.now += 2_000 if late else 2_000 + int(silent_ms * MS)
        self.correlation += 1
        self._add(
            Kind.RUNTIME,
            "cudaLaunchKernel",
            self.now,
            self.now + 4_000,
            correlation=self.correlation,
            thread=thread,
        )
        columns = {"correlation": self.correlation, "device": 0, "stream": 7, "thread": 107}
        self._add(Kind.KERNEL, f"kernel of {name}", self.now + 6_000, self.now + 506_000, **columns)
        self.now += 510_000 + (int(silent_ms * MS) if late else 0)
        self.close(op)

    def step(self, number: int, begin: int) -> None:
        self._add(Kind.ANNOTATION, f"ProfilerStep#{number}", begin, self.now)


def lengths_job(
    lengths: list[int | None], silent_ms: float, layers: int = 3, outside: bool = False
) -> Timeline:
    """A step for each length: attention forward and backward; the first layer of a new length sets up."""
    job, seen = Job(), set[int | None]()
    for number, length in enumerate(lengths):
        begin = job.now
        for name, thread in ((ATTENTION, 0), (BACKWARD, 1)):
            for layer in range(layers):
                new = layer == 0 and (length is None or length not in seen)
                job.call("aten::mm", 512, thread=thread)
                if outside and new:
                    job.now += int(silent_ms * MS)
                job.call(name, length, silent_ms if new and not outside else 0.0, thread)
        seen.add(length)
        job.step(number, begin)
    return job.timeline()
