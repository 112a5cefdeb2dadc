"""Random programs over aliased and mutated inputs, run by a backend and compared with eager."""
