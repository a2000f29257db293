"""Writes the list of a release: `python -m tests.engine_flags.extract vllm 0.33.0`.

The release's wheel is downloaded by pip, its source is kept in the user's cache, and the rest of it is deleted: a
wheel for CUDA has hundreds of megabytes, its source a few.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

import typer

from e2e.cluster.binaries import cache_folder
from tests.engine_flags import sglang, vllm
from tests.engine_flags.package import Package
from tests.unit.engine_flags import Flag, path


class Extractor(Protocol):
    """The module of an engine."""

    def flags(self, package: Package) -> dict[str, Flag]:
        """The flags of its server."""

    def environment(self, package: Package) -> set[str]:
        """The environment variables that it reads."""

    def more(self, package: Package) -> dict[str, Any]:
        """What else its list has."""


EXTRACTORS: Final[dict[str, Extractor]] = {"vllm": vllm, "sglang": sglang}
"""By engine. TensorRT-LLM is not here, as its wheel is not to be had from the registry that pip asks."""


def source(engine: str, version: str) -> Path:
    """The source of a release, downloaded unless it is in the cache.

    Args:
        engine: Name of the engine's package.
        version: Of the release.

    Returns:
        Folder that holds the package's folder.
    """
    kept = cache_folder() / "engine-flags" / f"{engine}-{version}"
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    # The source appears in the cache by one rename, whole.
    with tempfile.TemporaryDirectory(prefix=".downloading-", dir=kept.parent) as scratch:
        folder = Path(scratch)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--no-cache-dir", f"--dest={folder}", f"{engine}=={version}"]
        subprocess.run(command, check=True)
        (wheel,) = folder.glob("*.whl")
        unpacked = folder / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked, [name for name in archive.namelist() if name.endswith(".py")])
        shutil.move(unpacked, kept)
    return kept


def extracted(engine: str, version: str) -> str:
    """The list of a release, as it is to be kept.

    Args:
        engine: `vllm` or `sglang`.
        version: Of the release.

    Returns:
        JSON with a line for each flag, so that a diff of two lists reads well.
    """
    package = Package(source(engine, version))
    extractor = EXTRACTORS[engine]
    found = extractor.flags(package)
    lines: dict[str, Any] = {
        "engine": engine,
        "version": version,
        "source": f"{engine} {version}, its wheel",
        "flags": {name: found[name].to_json() for name in sorted(found)},
        "environment": sorted(extractor.environment(package)),
        **extractor.more(package),
    }
    return dumps(lines)


def dumps(content: dict[str, Any]) -> str:
    """JSON whose members each have a line, and whose members' members have one too.

    Args:
        content: What to write.

    Returns:
        The text, with a newline at its end.
    """
    members = [f" {json.dumps(key)}: {_member(value)}" for key, value in content.items()]
    return "{\n" + ",\n".join(members) + "\n}\n"


def _member(value: object) -> str:
    match value:
        case dict():
            lines = [f"  {json.dumps(key)}: {json.dumps(item)}" for key, item in value.items()]
            return "{\n" + ",\n".join(lines) + "\n }"
        case list():
            return "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ]"
    return json.dumps(value)


def main(
    engine: Annotated[str, typer.Argument(help="vllm or sglang")],
    version: Annotated[str, typer.Argument(help="The release, such as 0.33.0")],
) -> None:
    """Write the list of a release below tests/unit/engine_flags."""
    target = path(engine, version)
    target.write_text(extracted(engine, version))
    typer.echo(f"Wrote {target.name}")


if __name__ == "__main__":
    typer.run(main)
