"""From a Dockerfile to an archive that a node can import."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock

from e2e.cluster.errors import ClusterError
from e2e.images.base import BASE, ensure_base
from e2e.images.buildah import buildah, drafts_folder, image_id, image_sizes, images_folder
from e2e.images.pip_settings import pip_volumes

_REPOSITORY: Final = Path(__file__).parents[2]

_ID_LENGTH: Final = 12

# Every change of the sources leaves a few layers. Beyond this many the next build is one from the base.
_MOST_IMAGES: Final = 80

# Archives of one name that are kept: others may be about to put theirs on a node.
_MOST_ARCHIVES: Final = 6

# The argument that names what an image is made from, and the image of this project, if it is one.
_PARENTS: Final[Mapping[str, tuple[str, str | None]]] = {
    "operator": ("BASE", None),
    "engine-sim": ("OPERATOR", "operator"),
    "router": ("BASE", None),
}

BASE_NAME: Final = "base"

IMAGES: Final = (BASE_NAME, *_PARENTS)
"""Names of the images that can be built; `base` is what the others are made from."""


@dataclass(frozen=True)
class Image:
    """A finished image.

    Attributes:
        ref: Its reference, whose tag is a part of its id: an image that is not the same has another.
        archive: An OCI archive of it.
        size: Its bytes.
        added: How many of these bytes its parent does not have.
    """

    ref: str
    archive: Path
    size: int
    added: int

    @property
    def summary(self) -> str:
        """What there is to know at a glance."""
        size, added = (round(count / 1e6) for count in (self.size, self.added))
        return f"{self.ref}: {size} MB, of which {added} MB over what it is made from"

    @property
    def registry(self) -> str:
        """The registry in the reference."""
        return self.ref.partition("/")[0]

    @property
    def repository(self) -> str:
        """The repository in the reference."""
        return self.ref.partition("/")[2].rpartition(":")[0]

    @property
    def tag(self) -> str:
        """The tag in the reference."""
        return self.ref.rpartition(":")[2]


def build(name: str, *, sources: Path = _REPOSITORY) -> Image:
    """Build an image of this project, and first what it is made from.

    Args:
        name: One of `IMAGES`.
        sources: A folder with the files of this repository, such as those of another commit.

    Returns:
        The image.

    Raises:
        ClusterError: If there is no such image, or a step fails.
    """
    if name not in IMAGES:
        raise ClusterError(f"there is no image {name}: choose from {', '.join(IMAGES)}")
    images_folder().mkdir(parents=True, exist_ok=True)
    with FileLock(images_folder() / ".lock"):
        _tidy()
        return _build(name, sources)


def _tidy() -> None:
    """Forget what earlier builds have left; with the lock held no other build runs."""
    shutil.rmtree(drafts_folder(), ignore_errors=True)
    drafts_folder().mkdir()
    buildah("rm", "--all")
    images = image_sizes()
    if len(images) > _MOST_IMAGES:
        base = image_id(BASE)
        buildah("rmi", "--force", *(image for image in images if image != base))


def _build(name: str, sources: Path) -> Image:
    if name == BASE_NAME:
        return _finished(f"localhost/disagg/{name}", image_id(ensure_base()) or "", parent_size=0)
    argument, ours = _PARENTS[name]
    parent = _build(ours, sources).ref if ours else ensure_base()
    with tempfile.TemporaryDirectory(dir=drafts_folder()) as scratch:
        built = _layers(
            sources / "images" / name / "Dockerfile",
            sources,
            f"--build-arg={argument}={parent}",
            *pip_volumes(Path(scratch)),
        )
    return _finished(f"localhost/disagg/{name}", built, parent_size=image_sizes()[image_id(parent) or ""])


def _layers(dockerfile: Path, context: Path, *options: str) -> str:
    """Run a build whose unchanged layers are taken from the store; returns the image's id."""
    command = ("build", "--layers", "--quiet", "--pull=never", f"--file={dockerfile}", *options, str(context))
    return buildah(*command).strip().rpartition("\n")[2]


def _finished(repository: str, built: str, *, parent_size: int) -> Image:
    tag = built.removeprefix("sha256:")[:_ID_LENGTH]
    ref = f"{repository}:{tag}"
    name = repository.rpartition("/")[2]
    archive = images_folder() / f"{name}-{tag}.tar"
    if not archive.exists():
        buildah("tag", built, ref)
        draft = drafts_folder() / archive.name
        buildah("push", "--quiet", ref, f"oci-archive:{draft}:{ref}")
        draft.rename(archive)
    archive.touch()
    by_age = sorted(images_folder().glob(f"{name}-*.tar"), key=lambda path: path.stat().st_mtime)
    for older in by_age[:-_MOST_ARCHIVES]:
        older.unlink()
    size = image_sizes()[built.removeprefix("sha256:")]
    return Image(ref, archive, size, size - parent_size)
