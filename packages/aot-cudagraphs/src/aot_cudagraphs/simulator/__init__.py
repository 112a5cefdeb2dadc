"""CUDA graphs without CUDA: what capture refuses and what replay does, on CPU tensors."""
