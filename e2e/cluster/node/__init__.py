"""A real node beside the simulated ones: kubelet, containerd, kube-proxy and DNS, enclosed with the control plane.

The whole cluster runs in namespaces of its own for network, mounts and processes (`sandbox`). The network has no way
out (`network`). The end of the first process in there is the end of all others, of their mounts and of the network:
nothing that pods do or leave needs to be cleaned up one by one, however the cluster dies.
"""
