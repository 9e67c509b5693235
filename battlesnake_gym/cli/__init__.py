"""The console command and the game's own subcommands; nothing imports this room."""
