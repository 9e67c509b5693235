"""The subcommands of server, arena and pages."""
