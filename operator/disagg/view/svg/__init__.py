"""The picture as an SVG."""
