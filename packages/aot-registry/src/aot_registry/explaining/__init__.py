"""``aot explain``: what `aot_core.explain` tells of a user's model, as text, data, a page or a trace."""
