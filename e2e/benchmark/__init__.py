"""What the operator costs and how well it places, measured on a local cluster: `python -m e2e.benchmark`.

`operator`: `accounting` counts API requests (pure), `run` makes the resources and measures. `placement`:
`placement_trials` draws random clusters and `placement_methods` says what is created there (both pure), `placement`
looks where the pods end, `placement_decisions` measures the CPU of the look-ahead. `cli` is the command line.
"""
