"""``aot doctor``: which installed backends are usable here, and what is wrong with the others."""
