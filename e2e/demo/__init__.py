"""A model comes up on simulated racks, drawn while it happens: `python -m e2e.demo`.

`scene` makes of API objects what there is to see, `picture` draws that (both pure), `story` plays it against a local
cluster, `pods` plays another one with pods that run, `cli` is the command line.
"""
