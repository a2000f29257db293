"""Builds the images in `images/` for a node that can pull nothing: thin over buildah, with all layers cached.

On the command line `python -m e2e.images build operator`; in Python `build`. Needs root; its base image is made from
Debian's packages once and kept in the user's cache, as are layers and finished images.
"""

from e2e.images.build import IMAGES, Image, build

__all__ = ["IMAGES", "Image", "build"]
