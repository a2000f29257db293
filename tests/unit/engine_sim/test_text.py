from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from disagg.engine_sim.text import EOS, SPECIAL, VOCABULARY, Voice, decode, encode, voice

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts)
def test_text_comes_back(text: str) -> None:
    tokens = encode(text)
    assert all(0 <= token < VOCABULARY for token in tokens)
    for special in SPECIAL:
        text = text.replace(special, "")
    assert decode(tokens) == text


@given(st.lists(st.sampled_from(["the", "network", "unheard", "42"]), min_size=1), st.text(max_size=5))
def test_a_text_that_grows_keeps_the_tokens_of_its_words(words: list[str], more: str) -> None:
    text = " ".join(words)
    assert encode(text + " " + more)[: len(encode(text))] == encode(text)


def test_common_words_are_one_token() -> None:
    assert len(encode("the cache of the network")) == 5
    assert len(encode("xyzzyx")) == 3


def test_special_tokens_are_no_text() -> None:
    assert decode([EOS]) == ""
    assert encode("<|endoftext|>") == [EOS]


def test_what_is_said_follows_from_kv_and_sampling() -> None:
    def said(kv: list[bytes], sampling: bytes) -> str:
        speaker = voice(kv, sampling)
        return decode(speaker.next(may_end=False) for _ in range(12))

    assert said([b"a", b"b"], b"0") == said([b"a", b"b"], b"0")
    assert len({said([b"a", b"b"], b"0"), said([b"b", b"a"], b"0"), said([b"a", b"b"], b"1")}) == 3


def test_what_is_said_can_be_read_back_as_the_same_tokens() -> None:
    speaker = Voice(b"state")
    tokens = [speaker.next(may_end=False) for _ in range(50)]
    assert encode(decode(tokens)) == tokens


def test_a_script_is_said_and_then_the_end() -> None:
    script = encode('{"a": 1}')
    speaker = Voice(b"state", script=script)
    assert [speaker.next(may_end=False) for _ in range(len(script) + 1)] == [*script, EOS]


def test_answers_end_after_their_mean_length() -> None:
    lengths = []
    for index in range(400):
        speaker = Voice(str(index).encode(), mean_length=50)
        length = 1
        while speaker.next(may_end=True) != EOS:
            length += 1
        lengths.append(length)
    assert 43 < sum(lengths) / len(lengths) < 57
