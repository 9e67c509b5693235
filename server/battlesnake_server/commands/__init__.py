"""The subcommands for servers, the arena and the web pages."""
