"""The compile helper: turns kernels of PTX modules into shared objects, outside of all users."""
