"""The words that findwall says itself: all that stands in the texts of its source.

What a page must not tell is not known beforehand, as a name may be anything. What it may tell is.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import msgspec

LETTERS = re.compile(r"[^\W\d_]+")
# What divides a sentence into tokens: blanks, brackets, quotes, and signs that stand between words.
TOKEN = re.compile(r"[^\s,;()\[\]{}<>\"'`|·→×=‹›“”’]+")
ENDINGS = ("s", "es", "ed", "d", "ing")  # of a word whose other form is in the source


class Vocabulary(msgspec.Struct, frozen=True):
    """Words in lower case, and whole tokens, which may hold signs (`torch.compile`, `tokens/s`)."""

    words: frozenset[str]
    tokens: frozenset[str]

    def knows(self, word: str) -> bool:
        word = word.lower()
        if word in self.words:
            return True
        return any(word.endswith(end) and word[: -len(end)] in self.words for end in ENDINGS)


@cache
def own_vocabulary() -> Vocabulary:
    """Read once from the package's files, about a second."""
    words: set[str] = set()
    tokens: set[str] = set()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        for text in _texts(ast.parse(file.read_text(encoding="utf-8"))):
            words.update(word.lower() for word in LETTERS.findall(text))
            tokens.update(token.rstrip(".:!?") for token in TOKEN.findall(text))
        words.update(file.stem.split("_"))  # fixes are called like their files
    return Vocabulary(frozenset(words), frozenset(tokens))


def _texts(module: ast.Module) -> list[str]:
    """Every text of a file but its docstrings, which no page shows."""
    found: list[str] = []
    documents: set[ast.AST] = set()
    for node in ast.walk(module):  # what is around a text comes before it
        if isinstance(node, ast.Expr):
            documents.add(node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents:
            found.append(node.value)
    return found
