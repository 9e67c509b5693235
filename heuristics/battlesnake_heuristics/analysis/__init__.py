"""Who is better, and why: matches, the ladder, analysis, coaching, scenarios."""
