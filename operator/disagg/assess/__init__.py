"""Observed -> status and events. Pure: the last step of event -> key -> read -> decide -> build -> apply -> assess."""
