"""Writes an OCI archive of one program that needs no other file; for more there is `e2e.images`."""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any, Final

_TYPE: Final = "application/vnd.oci.image"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def write_program_archive(archive: Path, ref: str, program: Path) -> None:
    """Write the archive.

    Args:
        archive: The file.
        ref: Reference that the image gets where it is imported.
        program: A static binary, which becomes the entrypoint.
    """
    layer = _tar({program.name: program.read_bytes()}, mode=0o755)
    config = _json(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"], "User": "65532:65532"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_TYPE}.manifest.v1+json",
            "config": _descriptor("config.v1+json", config),
            "layers": [_descriptor("layer.v1.tar", layer)],
        }
    )
    named = _descriptor("manifest.v1+json", manifest) | {"annotations": {"io.containerd.image.name": ref}}
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": [named]}),
    }
    blobs = {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (layer, config, manifest)}
    archive.write_bytes(_tar(files | blobs, mode=0o644))


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": f"{_TYPE}.{media_type}", "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


def _tar(files: dict[str, bytes], *, mode: int) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return sink.getvalue()
