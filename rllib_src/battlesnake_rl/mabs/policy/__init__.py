"""Networks, and policies that play by them."""
