"""The benchmarks as commands: what they print holds."""
