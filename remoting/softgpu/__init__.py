"""The software GPU: PTX translator and compile helper in Python, runtime and drivers in C++."""
