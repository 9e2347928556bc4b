"""What all Triton kernels share: how they are launched, on which architecture, and how they run without a GPU.

Nothing here is imported before a kernel of kind "triton" is used, so Triton need not be installed.
"""
