"""Inputs that share memory, and writes to them.

::

    graph, inputs
      │ single_views     returned parts of a chunk, made one by one
      │ effects          what the graph does to its inputs, where that has to be known
      │ refusals         what no traced graph can do right
      │ explicit_copies  what eager copies is copied
      │ histories        outputs that autograd knows otherwise than AOTAutograd
      │ same_tensors     outputs that are inputs, or one tensor
      ▼
    preparation          all of these, in front of any compiler that calls AOTAutograd
      │ signature        what memory the inputs of a call share (apart: none)
      │ merge            one base for each group (view_chain: its views; memory: where they lie)
      ▼
    dealias              a compiled variant for each signature
"""
