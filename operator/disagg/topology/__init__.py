"""Which rack can hold a group of pods: a look-ahead for the kube-scheduler, which sees one pod at a time. Pure."""
