"""HTTP server of the live snake and of all pages; idle and slow connections cost little."""
