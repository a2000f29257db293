"""The only code that talks to the API server. It knows Kubernetes and nothing of disaggregated inference."""
