"""disagg: disaggregated LLM inference on Kubernetes.

One `DisaggregatedInference` becomes separate prefill, decode and router Deployments and Services. The way of a
resource through the code: event -> key -> read -> decide -> build -> apply -> assess -> status
(`disagg.reconcile.reconciler` is the place to start reading).
"""
