"""Networks, policies, board symmetries and warm starts."""
