"""Plans: integers in, integers out, no torch."""
