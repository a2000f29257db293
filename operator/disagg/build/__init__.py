"""Spec and decisions -> Kubernetes objects. Pure: values in, plain dictionaries out, one module an object kind."""
