"""Joint graphs of plain models with random weights, for measuring partitioners.

`case` names one: a model, its depth, whether it was decomposed, and whether its batch size is symbolic.
"""
