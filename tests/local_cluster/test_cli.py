"""The command line, as far as it needs no cluster."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from e2e.cluster import cli

COMMANDS = ["up", "down", "status", "kubectl", "helm", "kubeconfig"]


@pytest.mark.parametrize("arguments", [[], *([command] for command in COMMANDS)])
def test_every_command_explains_itself(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli.app, [*arguments, "--help"])
    assert result.exit_code == 0
    assert all(command in result.output for command in COMMANDS if not arguments)
    assert str(Path.home()) not in result.output


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x"])
def test_a_name_is_one_folder(name: str) -> None:
    result = CliRunner().invoke(cli.app, ["status", f"--name={name}"])
    assert result.exit_code == 2
    assert "is not a name" in result.output


def test_a_negative_delay_is_refused() -> None:
    assert CliRunner().invoke(cli.app, ["up", "--pod-ready-delay", "-1"]).exit_code == 2


def test_errors_are_texts_not_tracebacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["cluster", "kubeconfig", "--state", str(tmp_path / "none")])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.strip() == f"error: there is no cluster in {tmp_path / 'none'}"


def test_down_without_a_cluster_is_fine(tmp_path: Path) -> None:
    assert CliRunner().invoke(cli.app, ["down", "--state", str(tmp_path / "none")]).exit_code == 0
