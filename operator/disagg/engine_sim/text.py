"""Deterministic tokens and text: what an engine says is a function of the KV bytes it has.

A token is a common word with the space before it, or one or two bytes of anything else, so text survives the way to
tokens and back, and the tokens of a text that grows keep their beginning.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_WORDS = """
 the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you
 were all her she there would their we him been has when who will no more if out so said what up its about into than them
 can only other new some could time these two may then do first any my now such like our over man me even most made after
 also did many before must through back years where much your way well down should because each just those people how too
 little state good very make world still own see men work long get here between both life being under never day same
 another know while last might us great old year off come since against go came right used take three model engine token
 prompt answer question network memory system request response server cluster node prefill decode cache block
""".split()  # noqa: SIM905 - a list of strings is unreadable

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|tool|>")
_PAIRS = 256
_WORD_BASE = 256 + 65536
_SPECIAL_BASE = _WORD_BASE + 2 * len(_WORDS)
EOS = _SPECIAL_BASE
VOCABULARY = _SPECIAL_BASE + len(SPECIAL)

_STRINGS: dict[str, int] = {}
for _index, _word in enumerate(_WORDS):
    _STRINGS[_word] = _WORD_BASE + 2 * _index
    _STRINGS[" " + _word] = _WORD_BASE + 2 * _index + 1
for _index, _word in enumerate(SPECIAL):
    _STRINGS[_word] = _SPECIAL_BASE + _index
_BYTES: dict[int, bytes] = {number: text.encode() for text, number in _STRINGS.items()}
_PIECE = re.compile("|".join(re.escape(each) for each in SPECIAL) + r"| ?[A-Za-z]+|[^A-Za-z]")

_SPOKEN = [_STRINGS[" " + word] for word in _WORDS]


def encode(text: str) -> list[int]:
    """The tokens of a text."""
    found: list[int] = []
    for piece in _PIECE.findall(text):
        known = _STRINGS.get(piece)
        if known is not None:
            found.append(known)
            continue
        raw = piece.encode("utf-8", "surrogatepass")
        pairs = len(raw) - len(raw) % 2
        found += [_PAIRS + (raw[index] << 8) + raw[index + 1] for index in range(0, pairs, 2)]
        if len(raw) % 2:
            found.append(raw[-1])
    return found


def token_bytes(token: int) -> bytes:
    """What a token stands for; special ones and unknown ones for nothing."""
    if token < _PAIRS:
        return bytes((token,))
    if token < _WORD_BASE:
        return bytes(((token - _PAIRS) >> 8, (token - _PAIRS) & 255))
    return b"" if token >= _SPECIAL_BASE else _BYTES[token]


def decode(tokens: Iterable[int]) -> str:
    """The text of tokens, without special ones."""
    return b"".join(map(token_bytes, tokens)).decode("utf-8", "replace")


def token_text(token: int) -> str:
    """How one token shows in log probabilities."""
    return _BYTES[token].decode() if token >= _SPECIAL_BASE and token in _BYTES else decode((token,))


@dataclass
class Voice:
    """Says the tokens that follow a prompt.

    Attributes:
        state: Digest of everything said so far; begins with that of the prompt's KV bytes.
        script: Tokens that must be said as they are, such as a tool call; then the end.
        mean_length: Tokens after which an answer ends by itself, on average; 0 for never.
    """

    state: bytes
    script: list[int] = field(default_factory=list)
    mean_length: int = 0
    _said: int = 0

    def next(self, *, may_end: bool) -> int:
        """The next token.

        Args:
            may_end: Whether the end of the answer may come now.
        """
        self.state = hashlib.blake2b(self.state, digest_size=16).digest()
        self._said += 1
        if self.script:
            if self._said <= len(self.script):
                return self.script[self._said - 1]
            return EOS
        if may_end and self.mean_length and self.state[0] * 256 + self.state[1] < 65536 // self.mean_length:
            return EOS
        return _SPOKEN[int.from_bytes(self.state[2:6], "big") % len(_SPOKEN)]

    def alternatives(self, amount: int) -> list[int]:
        """Tokens that might have come instead of the last one, likeliest first."""
        base = int.from_bytes(self.state[6:10], "big")
        return [_SPOKEN[(base + index * 7) % len(_SPOKEN)] for index in range(amount)]

    def logprob(self) -> float:
        """Log probability of the last token."""
        return -(1 + self.state[10]) / 256


def voice(kv: Sequence[bytes], sampling: bytes, *, mean_length: int = 0) -> Voice:
    """A voice for a prompt.

    Args:
        kv: The digests that the prompt's blocks hold.
        sampling: What else decides: seed and number of the sample.
        mean_length: See `Voice`.
    """
    return Voice(hashlib.blake2b(b"".join(kv) + sampling, digest_size=16).digest(), mean_length=mean_length)


def words(state: bytes, amount: int) -> str:
    """A few words that depend on `state`, as arguments of tool calls."""
    said = Voice(state)
    return decode(said.next(may_end=False) for _ in range(amount)).strip()
