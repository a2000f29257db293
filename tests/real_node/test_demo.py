"""The demo with real pods, as somebody who tries the project meets it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster, wait_until
from e2e.demo.pods import word_of
from tests.e2e.shell import run, shell

pytestmark = pytest.mark.real_node


def demo(state: Path, command: str) -> str:
    done = run(sys.executable, "-m", "e2e.demo", command, "--state", str(state))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "pods"
    yield folder
    Cluster(folder).down()


def printed(output: str) -> dict[str, str]:
    """The commands that it prints, by what they do."""
    lines = output.partition("try next")[2].splitlines()[1:]
    return {title.removeprefix("# "): command for title, command in zip(lines[::2], lines[1::2], strict=True)}


def test_a_question_is_answered_by_both_roles_and_the_printed_commands_work(state: Path) -> None:
    output = demo(state, "pods")
    assert "time to first token" in output
    assert "prompt tokens computed: " in output
    assert " by chat-prefill-" in output
    assert " by chat-decode-" in output

    commands = printed(output)
    answer = shell(commands["ask it something"])
    assert "".join(map(word_of, answer.splitlines())).strip()
    assert "Application startup complete" in shell(commands["read an engine's log"])
    shell(commands["break a rollout of decode: what is old goes on answering"])
    why = commands["read why it is not ready"]
    wait_until("it is told", lambda: "unrecognized arguments: --no-such-flag" in shell(why))
    assert "[DONE]" in shell(commands["ask it something"])
    shell(commands["stop all of it"])
    assert not state.exists()
