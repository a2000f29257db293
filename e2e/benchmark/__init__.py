"""What the operator costs, measured on a local cluster: `python -m e2e.benchmark`.

`accounting` counts API requests (pure), `run` makes the resources and measures, `cli` is the command line.
"""
