"""The PTX translator on texts that nobody's compiler wrote.

Texts of compilers and by hand are cut, spliced, and given other words and numbers. Whatever comes
of it, the translator answers with a result or with PtxError, in bounded time and memory. Everything
else is a finding, and is kept as a file:

    python -m tests.fuzz.fuzz_ptx --seconds 60
    python -m tests.fuzz.fuzz_ptx --text FINDING.ptx
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from remoting.softgpu.ptx import PtxError, TargetSpec, compile_kernel, inspect_module, kernel_ir
from tests.unit.softgpu_ptx import nvrtc

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "tests" / "unit" / "softgpu_ptx" / "kernels"
CORPUS = ROOT / "tests" / "fuzz" / "corpus"

LONGEST_SECONDS = 30
MEMORY_BYTES = 4 << 30
LONGEST_TEXT = 60_000
_MOST_FINDINGS = 20
_TOKEN = re.compile(r"[\w.$%@]+|\s+|.")
_NUMBER = re.compile(r"\b(?:0[xX][0-9a-fA-F]+|\d+)\b")
_NUMBERS = (
    "0", "1", "2", "3", "7", "8", "15", "16", "31", "32", "33", "63", "64", "127", "128", "255",
    "256", "4095", "4096", "65535", "65536", "2147483647", "2147483648", "4294967295",
    "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551615",
    "18446744073709551616", "0x7fffffff", "0xffffffffffffffff", "0f7F800000", "0d7FF8000000000000",
    "1e400", "99999999999999999999999999",
)  # fmt: skip
_CHARACTERS = ";,.:{}()[]<>=@!%-+*/\"'\\\t\n\r\0 #$_|&~^?é"


class TooSlow(BaseException):
    """Not an Exception, so that nobody in between takes it for one of theirs."""


def seeds() -> list[str]:
    """Texts to begin with."""
    texts = [path.read_text() for path in sorted(CORPUS.glob("*/*.ptx"))]
    texts += [path.read_text() for path in sorted(KERNELS.glob("*.ptx"))]
    for source in sorted(KERNELS.glob("*.cu")):
        texts.append(nvrtc.compile_file(source.name, 80))
    texts.append(nvrtc.compile_file("basic.cu", 80, "-G"))  # debug sections
    return texts


class Mutator:
    """Makes a new text of one or two."""

    def __init__(self, texts: Sequence[str], rng: random.Random) -> None:
        self._texts = texts
        self._rng = rng
        self._words = sorted({w for t in texts for w in _TOKEN.findall(t) if not w.isspace()})
        self._ways: list[Callable[[str], str]] = [
            self._cut,
            self._repeat,
            self._word,
            self._word,
            self._word,
            self._number,
            self._number,
            self._character,
            self._line,
            self._line,
            self._swap,
            self._splice,
            self._end,
        ]

    def make(self) -> str:
        """A text with one to six changes."""
        text = self._excerpt(self._rng.choice(self._texts))
        for _ in range(self._rng.choice((1, 1, 1, 2, 3, 6))):
            text = self._rng.choice(self._ways)(text)[:LONGEST_TEXT]
        return text

    def _excerpt(self, text: str) -> str:
        """Long modules are shortened to their head and some entry, so that there are many runs."""
        entries = [m.start() for m in re.finditer(r"^(?:\.visible )?\.entry", text, re.M)]
        if len(entries) < 2 or self._rng.random() < 0.1:
            return text
        begin = self._rng.choice(entries)
        later = [at for at in entries if at > begin]
        return text[: entries[0]] + text[begin : later[0] if later else len(text)]

    def _span(self, text: str, longest: int) -> tuple[int, int]:
        begin = self._rng.randrange(len(text) + 1)
        return begin, min(len(text), begin + 1 + int(self._rng.paretovariate(0.7)) % longest)

    def _cut(self, text: str) -> str:
        begin, end = self._span(text, 400)
        return text[:begin] + text[end:]

    def _repeat(self, text: str) -> str:
        begin, end = self._span(text, 400)
        times = self._rng.choice((1, 1, 2, 50))
        return text[:end] + text[begin:end] * times + text[end:]

    def _replace(self, text: str, pattern: re.Pattern[str], new: Callable[[], str]) -> str:
        begin = self._rng.randrange(len(text) + 1)
        found = pattern.search(text, begin) or pattern.search(text)
        return text if found is None else text[: found.start()] + new() + text[found.end() :]

    def _word(self, text: str) -> str:
        return self._replace(text, re.compile(r"[\w.$%@]+"), lambda: self._rng.choice(self._words))

    def _number(self, text: str) -> str:
        return self._replace(text, _NUMBER, lambda: self._rng.choice(_NUMBERS))

    def _character(self, text: str) -> str:
        at = self._rng.randrange(len(text) + 1)
        return text[:at] + self._rng.choice(_CHARACTERS) + text[at + self._rng.randrange(2) :]

    def _lines(self, text: str) -> list[str]:
        return text.splitlines(keepends=True) or [text]

    def _line(self, text: str) -> str:
        """Another line of any text, in place of one or before one."""
        lines = self._lines(text)
        at = self._rng.randrange(len(lines))
        new = self._rng.choice(self._lines(self._rng.choice(self._texts)))
        lines[at : at + self._rng.randrange(2)] = [new]
        return "".join(lines)

    def _swap(self, text: str) -> str:
        lines = self._lines(text)
        one, other = (self._rng.randrange(len(lines)) for _ in range(2))
        lines[one], lines[other] = lines[other], lines[one]
        return "".join(lines)

    def _splice(self, text: str) -> str:
        other = self._rng.choice(self._texts)
        begin = self._rng.randrange(len(other) + 1)
        return text[: self._rng.randrange(len(text) + 1)] + other[begin : begin + 5000]

    def _end(self, text: str) -> str:
        return self._rng.choice((
            lambda: text[: self._rng.randrange(len(text) + 1)],
            lambda: text.replace("\n", "\r\n"),
            lambda: text.replace("\n", " "),
            lambda: text + "\0",
            lambda: text.rstrip() + "//",
            lambda: text + "/*",
        ))()  # fmt: skip


class Finding(Exception):
    """Something that must not be."""


def refused(error: PtxError) -> str:
    """The kind of a refusal that says why."""
    if not error.message:
        raise Finding("a refusal without a reason")
    if "generated code is not valid" in error.message:
        # Made of what the parser accepted, so the generator made a mistake.
        raise Finding(error.message)
    return error.kind


def try_text(text: str, rng: random.Random) -> str:
    """What came of a text; any exception but PtxError is a finding."""
    try:
        module = inspect_module(text)
    except PtxError as error:
        return refused(error)
    outcome = "no kernel"
    for kernel in module.kernels[:3]:
        for offset, size in kernel.params:
            assert offset + size <= kernel.param_bytes, kernel
        try:
            if rng.random() < 0.25:
                compile_kernel(text, kernel.name, TargetSpec.host(0))
                outcome = "compiled"
            else:
                kernel_ir(text, kernel.name)
                outcome = "translated"
        except PtxError as error:
            outcome = refused(error)
    return outcome


def limit_time(seconds: int) -> None:
    """Of this process, so that a busy machine is no finding. 0: no limit."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)


def _alarm(signum: int, frame: FrameType | None) -> None:
    raise TooSlow


def place_of(error: BaseException) -> str:
    """What tells one finding from another: the kind, and the innermost place of our own code."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "softgpu" in f.filename]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__} at {where}"


def run(seconds: float, seed: int, keep: Path) -> bool:
    """False: there was a finding."""
    rng = random.Random(seed)
    mutator = Mutator(seeds(), rng)
    outcomes: dict[str, int] = {}
    findings: set[str] = set()
    last = keep / "fuzz_ptx-last.ptx"  # what is left of a crash
    begun = time.monotonic()
    count = 0
    while time.monotonic() - begun < seconds and len(findings) < _MOST_FINDINGS:
        text = mutator.make()
        last.write_text(text, errors="surrogatepass", newline="")
        limit_time(LONGEST_SECONDS)
        try:
            outcome = try_text(text, rng)
        except (Exception, TooSlow) as error:
            limit_time(0)
            outcome = "FINDING"
            if (place := place_of(error)) not in findings:
                findings.add(place)
                finding = keep / f"fuzz_ptx-{seed}-{count}.ptx"
                last.rename(finding)
                print(f"finding: {place}: {error} (run {count}, seed {seed}): {finding}")
        limit_time(0)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        count += 1
    last.unlink(missing_ok=True)
    print(", ".join(f"{name}: {number}" for name, number in sorted(outcomes.items())))
    print(f"Done {count} runs in {time.monotonic() - begun:.0f} second(s), seed {seed}")
    return not findings


def main() -> int:
    """Fuzz for a while, or try one text again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, default=Path("."), help="folder for findings")
    parser.add_argument("--text", type=Path, help="try this text only")
    given = parser.parse_args()
    faulthandler.enable()
    signal.signal(signal.SIGVTALRM, _alarm)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    if given.text:
        text = given.text.read_bytes().decode(errors="replace")
        print(try_text(text, random.Random(0)))
        return 0
    return 0 if run(given.seconds, given.seed, given.keep) else 1


if __name__ == "__main__":
    sys.exit(main())
