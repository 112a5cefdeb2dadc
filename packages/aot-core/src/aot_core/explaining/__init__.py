"""What `aot_core.explain` is made of.

::

    call               one call, on copies (isolated_copies)
      │ explained_backend    a backend that looks at each graph
      │   captured_graph     what a graph does to memory (memory_overlap), by name (tensor_names)
      ▼
    explanation        plain data, as a table or Markdown (text)
"""
