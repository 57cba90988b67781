"""How strategies without a model move: populations, climbs, acceptance, dominance."""
