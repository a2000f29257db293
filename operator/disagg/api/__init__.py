"""The resource: its fields, its rules, its status and the names of what it becomes. Everything else imports this."""
