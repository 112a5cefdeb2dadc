"""The exact minimum cut of a joint graph: rules that say what may be recomputed, a flow network, a solver."""
